//! Keys of sites and routes that have no effect where they stand, which are refused at the start;
//! and what is for more hosts than one that has routes outside of a site.

use std::process::Command;

use weir_tests::server::run;
use weir_tests::{Root, Server};

use crate::WEIR;
use crate::sites::{check_refuses, get, write_config, write_users};

/// Asserts the statuses of the replies to requests for paths on hosts, under a configuration.
fn check_statuses(root: &Root, text: &str, wanted: &[(&str, &str, u16)]) {
    let config = write_config(root, text);
    let server = Server::start(WEIR, &["--config", config.to_str().unwrap()], root);
    for (host, target, status) in wanted {
        assert_eq!(get(&server, host, target).status, *status, "{host} {target}");
    }
    server.stop_cleanly();
}

#[test]
fn a_key_without_effect_is_refused_with_its_place() {
    let root = Root::with_hello();
    for (text, says) in [
        ("[[route]]\nstatus = 200\nstrip = true\n", "line 3, column 9: strip is for files"),
        (
            "[[route]]\nredirect = '/a'\ntry-files = '/b'\n",
            "line 3, column 13: try-files is for files",
        ),
        (
            "upstream = 'a=unix:a'\n[[route]]\nupstream = 'a'\nroot = '/'\n",
            "line 4, column 8: root is for files",
        ),
        (
            "[[site]]\nhosts = 'a'\nstatus = 200\n[[site.route]]\npath = '/b'\nlisting = true\n",
            "line 6, column 11: listing is for files",
        ),
        (
            "[[site]]\nhosts = 'a'\nstatus = 200\ntry-files = '/b'\n",
            "line 4, column 13: try-files is for files",
        ),
        (
            "[[route]]\ncors-methods = 'PUT'\n",
            "line 2, column 16: cors-methods means nothing without cors-origins",
        ),
        (
            "[[site]]\nhosts = 'a'\nauth-realm = 'b'\n",
            "line 3, column 14: auth-realm means nothing without auth-file",
        ),
        (
            "[[site]]\nhosts = 'a'\n[[site.route]]\nauth-realm = 'b'\n",
            "line 4, column 14: auth-realm means nothing without auth-file",
        ),
    ] {
        check_refuses(&root, text, says);
    }
}

#[test]
fn a_switch_that_is_off_may_stand_where_it_would_have_no_effect() {
    let root = Root::with_hello();
    for text in [
        "[[route]]\nstatus = 200\nstrip = false\nlisting = false\n",
        "[[route]]\ncors-credentials = false\n",
        "[[site]]\nhosts = 'a'\nlisting = true\ncors-credentials = false\n\
         [[site.route]]\nstatus = 200\nlisting = false\n",
    ] {
        let checked = run(Command::new(WEIR).arg("check").arg(write_config(&root, text)));
        assert_eq!(checked.status.code(), Some(0), "{text:?}: {}", checked.stderr);
    }
}

#[test]
fn a_key_of_a_site_may_be_for_its_routes() {
    let root = Root::with_hello();
    write_users(&root);
    let (www, users) = (root.path().display(), root.outside().join("users"));
    let text = format!(
        "upstream = 'a=unix:a'\n[[site]]\nhosts = 'a'\nupstream = 'a'\nroot = '{www}'\n\
         listing = true\nauth-realm = 'b'\ncors-methods = 'PUT'\n\
         [[site.route]]\npath = '/b'\nupstream = 'files'\nauth-file = '{}'\n\
         [[site.route]]\npath = '/c'\ncors-origins = 'https://c.example'\n",
        users.display()
    );
    let checked = run(Command::new(WEIR).arg("check").arg(write_config(&root, &text)));
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
}

#[test]
fn a_host_has_what_is_for_all_names_above_it_where_nothing_is_for_it_alone() {
    let root = Root::with_hello();
    let text = "[[route]]\nhost = '*.example.org'\npath = '/admin'\nallow = ['10.0.0.0/8']\n\
         [[route]]\nhost = '*.b.example.org'\npath = '/admin'\nstatus = 410\n\
         [[route]]\npath = '/admin/open'\nstatus = 200\n\
         [[route]]\nhost = 'a.example.org'\npath = '/ping'\nstatus = 204\n\
         [[route]]\nhost = 'c.b.example.org'\npath = '/ping'\nstatus = 204\n";
    check_statuses(
        &root,
        text,
        &[
            ("a.example.org", "/ping", 204),
            ("a.example.org", "/admin", 403),
            ("a.example.org", "/admin/open", 403),
            ("z.example.org", "/admin/open", 403),
            ("z.example.org", "/ping", 404),
            ("c.b.example.org", "/ping", 204),
            ("c.b.example.org", "/admin", 410),
            ("other.example", "/admin/open", 200),
        ],
    );
}

#[test]
fn what_denies_any_host_a_path_holds_behind_a_route_for_all_names_above_that_denies_nothing() {
    let root = Root::with_hello();
    let text = "[[route]]\npath = '/admin'\nallow = ['10.0.0.0/8']\n\
         [[route]]\npath = '/admin/open'\nstatus = 200\n\
         [[route]]\npath = '/old'\nstatus = 410\n\
         [[route]]\nhost = '*.example.org'\nstatus = 204\n\
         [[route]]\nhost = '*.b.example.org'\npath = '/admin'\nstatus = 410\n\
         [[route]]\nhost = 'a.example.org'\npath = '/static'\nstatus = 404\n\
         [[route]]\nhost = 'c.b.example.org'\npath = '/static'\nstatus = 404\n";
    check_statuses(
        &root,
        text,
        &[
            ("a.example.org", "/static", 404),
            ("a.example.org", "/admin", 403),
            ("a.example.org", "/admin/x", 403),
            ("a.example.org", "/admin/open", 200),
            ("a.example.org", "/old", 204),
            ("a.example.org", "/", 204),
            // The nearer one is for the same path.
            ("c.b.example.org", "/admin", 410),
            ("c.b.example.org", "/admin/open", 410),
            ("c.b.example.org", "/old", 204),
        ],
    );
}

#[test]
fn a_route_of_a_host_hides_what_denies_all_names_above_it_a_path_below() {
    let root = Root::with_hello();
    let text = "[[route]]\nhost = '*.example.org'\npath = '/admin/x'\nallow = ['10.0.0.0/8']\n\
         [[route]]\nhost = 'a.example.org'\nstatus = 204\n\
         [[route]]\nhost = 'b.example.org'\npath = '/admin'\nstatus = 204\n\
         [[route]]\nhost = 'c.example.org'\npath = '/admin/x/y'\nstatus = 204\n";
    check_statuses(
        &root,
        text,
        &[
            ("a.example.org", "/admin/x", 204),
            ("b.example.org", "/admin/x", 204),
            ("c.example.org", "/admin/x", 403),
            ("c.example.org", "/admin/x/y", 204),
            ("d.example.org", "/admin/x/y", 403),
        ],
    );
}

#[test]
fn a_host_may_have_routes_outside_of_a_site_above_it_that_is_for_all_clients() {
    let root = Root::with_hello();
    let text = "[[site]]\nhosts = ['*.b']\nallow = ['10.0.0.0/8']\n\
         [[site]]\nhosts = ['*.a.b']\nstatus = 410\n\
         [[route]]\nhost = 'x.a.b'\npath = '/ping'\nstatus = 204\n";
    check_statuses(
        &root,
        text,
        &[
            ("x.a.b", "/ping", 204),
            ("x.a.b", "/hello.txt", 200),
            ("y.a.b", "/ping", 410),
            ("z.b", "/ping", 403),
        ],
    );
    check_refuses(
        &root,
        "[[site]]\nhosts = ['*.a.b']\n[[site.route]]\npath = '/c'\ndeny = ['::1']\n\
         [[route]]\nhost = 'x.a.b'\nstatus = 204\n",
        "line 7, column 8: the host is one of *.a.b, which have a [[site]]",
    );
}

#[test]
fn a_value_that_does_not_fit_another_has_the_place_of_its_own_key() {
    let root = Root::with_hello();
    for (text, says) in [
        (
            "[[route]]\nauth-file = '/no/such'\nauth-realm = 'a\"b'\n",
            "line 3, column 14: auth-realm is ASCII",
        ),
        (
            "[[route]]\ncors-origins = ['*']\ncors-credentials = true\n",
            "line 3, column 20: cors-credentials is for origins that are named",
        ),
    ] {
        check_refuses(&root, text, says);
    }
}
