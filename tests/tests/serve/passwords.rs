//! Passwords while they are verified: what becomes of a client that says nothing more, and what the
//! wait costs; and what is too long to be a password.

use std::time::Instant;

use weir_tests::server::UNHURRIED;
use weir_tests::{Client, Origin, Root, Server, Setup, request, suite};

use crate::WEIR;
use crate::sites::{ALADDIN, BCRYPT, FIVE, WRONG, serve, write_config, write_outside, write_users};

suite! {
    every_architecture:
    a_client_that_ends_its_side_with_its_request_is_answered,
    nothing_is_polled_for_while_a_password_is_verified,
}

suite! {
    every_forwarding_architecture:
    a_request_is_forwarded_though_its_client_has_ended_its_side,
}

/// A route for which there are users.
const PRIVATE: &str = "[[route]]\npath = '/private'\nauth-file = 'OUTSIDE/users'\n";

/// Returns a root with a file below that route.
fn root() -> Root {
    let root = Root::with_hello();
    root.write("private/a.txt", "private");
    root
}

fn ask(authorization: &str) -> String {
    request("GET", "/private/a.txt", &[authorization])
}

fn a_client_that_ends_its_side_with_its_request_is_answered(setup: &Setup) {
    let root = root();
    write_users(&root);
    let server = serve(setup, &root, PRIVATE);
    let mut client = server.connect();
    client.send_last(ask(WRONG));
    assert_eq!(client.reply().status, 401);
    assert!(client.is_closed());
    // Two that are not known yet.
    let mut client = server.connect();
    client.send_last(ask(ALADDIN) + &ask(FIVE));
    assert_eq!([0; 2].map(|_| client.reply().text()), ["private"; 2]);
    assert!(client.is_closed());
    server.stop_cleanly();
}

fn a_request_is_forwarded_though_its_client_has_ended_its_side(setup: &Setup) {
    let origin = Origin::echo();
    let root = root();
    write_users(&root);
    let (upstream, url) = ("[[upstream]]\nname = 'app'\n", origin.url());
    let text = format!("{upstream}servers = '{url}'\n{PRIVATE}upstream = 'app'\n");
    let server = serve(setup, &root, &text);
    let mut client = server.connect();
    client.send_last(ask(ALADDIN));
    assert_eq!(client.reply().text(), "GET /private/a.txt HTTP/1.1\n");
    assert!(client.ends());
    server.stop_cleanly();
}

fn nothing_is_polled_for_while_a_password_is_verified(setup: &Setup) {
    const OTHERS: usize = 150;
    let root = root();
    // A hash that takes tens of milliseconds.
    write_outside(&root, "users", &format!("Aladdin:{}\n", BCRYPT.replace("$04$", "$10$")));
    let server = serve(setup, &root, PRIVATE);
    let mut client = server.connect();
    // Several times what is read ahead meanwhile: the rest stays in the socket.
    let padding = format!("X: {}", "x".repeat(3000));
    let others = request("GET", "/hello.txt", &[&padding]).repeat(OTHERS);
    let began = Instant::now();
    client.send(ask(WRONG) + &others);
    assert_eq!(client.reply().status, 401);
    let waited_ms = began.elapsed().as_millis();
    for _ in 0..OTHERS {
        assert_eq!(client.reply().text(), "hello");
    }
    let stats = server.stop_cleanly().stats();
    let calls = stats["total"]["getevents_calls"].as_u64().unwrap();
    // It looks every 5 ms. A busy wait polls hundreds of times in one.
    assert!(u128::from(calls) < 1000 + waited_ms, "{calls} waits, {waited_ms} ms");
}

#[test]
fn what_is_too_long_for_a_password_holds_up_nobody() {
    let root = root();
    write_users(&root);
    let config = write_config(&root, &PRIVATE.replace("OUTSIDE", root.outside().to_str().unwrap()));
    let by_file = ["--config", config.to_str().unwrap()];
    let server = Server::start(WEIR, &[UNHURRIED, by_file].concat(), &root);
    // A name, a letter of the password, and so many times three more letters, encoded.
    let guess = |times: usize| format!("Authorization: Basic Zml2ZTp4{}", "eHh4".repeat(times));
    // More than may wait to be verified.
    let mut guesses: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    for client in &mut guesses {
        client.send(ask(&guess(15_000)));
    }
    assert_eq!(server.get_with("/private/a.txt", &[ALADDIN]).text(), "private");
    for client in &mut guesses {
        assert_eq!(client.reply().status, 401);
    }
    // Longer than a password, but not than a name with one.
    assert_eq!(server.get_with("/private/a.txt", &[&guess(200)]).status, 401);
    server.stop_cleanly();
}
