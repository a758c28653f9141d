//! `weir serve` and `weir proxy`: turn options into a configuration.

use std::ffi::OsString;
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{CommandFactory, Parser};

use weir_server::architecture::ArchitectureName;
use weir_server::readiness::settings::Settings;
use weir_server::sites::{ErrorPage, Sites};
use weir_server::{
    AccessLog, Address, Config, LogFormat, OUTPUTS, OutputPath, PRESETS, Predecessor, SiteRoot,
    Strategy, Timeouts, accept, architecture, content, files, readiness, slots, tls,
};

use crate::caching::CacheOptions;
use crate::config_file::{self, Environment, Merged, Places, Tables};
use crate::error_log::log_target;
use crate::forwarding::{self, Forwarding};
use crate::options::{
    CheckOptions, Precompressed, ProxyOptions, ServeOptions, ServerOptions, Symlinks,
};
use crate::print::print_text;
use crate::running::{self, Fingerprinted, Outputs};
use crate::sites;
use crate::values::{OnOff, ns, saturated};
use crate::{Cli, Task, one_sentence};

/// Upstreams that stand for those on a command line that is not known: without TLS, and with it.
const SOME_URL: &str = "http://127.0.0.1:80";
const SOME_TLS_URL: &str = "https://127.0.0.1:443";

/// Maximum size of the body of a request that is not forwarded where `--max-body` is not given,
/// bytes.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// Serves until told to stop.
///
/// # Errors
/// A sentence: the options ask for something that cannot be provided.
pub(crate) fn serve(
    options: ServeOptions,
    tables: &Tables,
    predecessor: Option<Predecessor>,
) -> Result<ExitCode, String> {
    let outputs = Outputs::of(&options.server, predecessor)?;
    let configured = serve_configuration(options, tables)?;
    let root = configured.config.root.as_deref();
    let what = root.map(|root| root.display().to_string()).unwrap_or_default();
    running::run(configured, &what, outputs, read_again)
}

/// Stands in front of other servers until told to stop.
///
/// # Errors
/// A sentence: the options ask for something that cannot be provided.
pub(crate) fn proxy(
    options: ProxyOptions,
    predecessor: Option<Predecessor>,
) -> Result<ExitCode, String> {
    let outputs = Outputs::of(&options.server, predecessor)?;
    let urls = options.urls.join(", ");
    running::run(proxy_configuration(options)?, &urls, outputs, read_again)
}

/// Reads the configuration of this process again, by the arguments and the environment that it was
/// started with.
///
/// # Errors
/// A sentence, as at the start.
fn read_again() -> Result<Fingerprinted, String> {
    let environment: Vec<_> = std::env::vars_os().collect();
    let args: Vec<OsString> = std::env::args_os().collect();
    let matches =
        Cli::command().try_get_matches_from(&args).map_err(|error| one_sentence(&error))?;
    let Merged { args, tables, places, .. } = config_file::merge(args, &matches, &environment)?;
    let configured = configured(args, &tables).map_err(|why| places.locate(why))?;
    configured.ok_or_else(|| "this is no server's command line".into())
}

/// Checks a configuration file, with the options of the environment, as far as that is possible
/// without serving.
///
/// # Errors
/// A sentence, as the server would say it at its start.
pub(crate) fn check_file(
    options: &CheckOptions,
    environment: &Environment,
) -> Result<ExitCode, String> {
    let file = options.file.as_os_str();
    let (task, upstream) = if options.proxy { ("proxy", Some(SOME_URL)) } else { ("serve", None) };
    let mut args: Vec<OsString> = ["weir", task, "--config"].iter().map(OsString::from).collect();
    args.push(file.into());
    args.extend(upstream.map(OsString::from));
    let Checked { config, places, tables } =
        checked(args, environment, upstream.is_some())?.ok_or("there is nothing to check")?;
    weir_server::check(&config).map_err(|it| places.locate_at(it.option, &it.why))?;
    let listen: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
    let listen = listen.join(", ");
    let what = match &config.root {
        None => "stands in front of its upstreams".into(),
        Some(root) => {
            check_root(root, config.content.listing)
                .map_err(|why| places.locate_at("root", &why))?;
            for SiteRoot { path, listing, .. } in &config.site_roots {
                check_root(path, *listing).map_err(|why| tables.locate_root(path, &why))?;
            }
            // A server that is started elsewhere serves another directory.
            let absolute = std::path::absolute(root).unwrap_or_else(|_| root.clone());
            format!("serves {}", absolute.display())
        }
    };
    print_text(&format!("weir: {} is sound: {what} on {listen}\n", options.file.display()))
}

/// Checks that files of a root can be served, and its directories listed where they are to be.
fn check_root(root: &Path, lists: bool) -> Result<(), String> {
    let checked = weir_server::check_root(root, lists);
    checked.map_err(|error| format!("{}: {error}", root.display()))
}

/// Checks the command line of a `weir serve` or `weir proxy`, from its subcommand on, as far as
/// that is possible without serving.
///
/// # Errors
/// A sentence, as the server would say it at its start.
pub(crate) fn check(words: &[String]) -> Result<(), String> {
    let args = std::iter::once("weir").chain(words.iter().map(String::as_str));
    checked(args.map(OsString::from).collect(), &[], false).map(drop)
}

/// A configuration that is sound by itself, with the places of its options and its tables.
struct Checked {
    config: Config,
    places: Places,
    tables: Tables,
}

/// Returns the configuration of a command line; `None` if it is not one of a server. `stands_in`:
/// whether its last word is [`SOME_URL`], in place of the upstreams.
fn checked(
    args: Vec<OsString>,
    environment: &Environment,
    stands_in: bool,
) -> Result<Option<Checked>, String> {
    let matches =
        Cli::command().try_get_matches_from(&args).map_err(|error| one_sentence(&error))?;
    let Merged { mut args, tables, places, .. } = config_file::merge(args, &matches, environment)?;
    if stands_in {
        choose_stand_in(&mut args);
    }
    let named = matches.subcommand().and_then(|(_, serve)| serve.value_source("mechanism"));
    let is_named = named == Some(ValueSource::CommandLine);
    let configured = configured(args, &tables).map_err(|why| places.locate(why))?;
    let Some(Fingerprinted { config, .. }) = configured else { return Ok(None) };
    let architecture = config.arch.row();
    if is_named && !architecture.takes_mechanism {
        return Err(format!("--arch {} takes no mechanism", architecture.spelling));
    }
    Ok(Some(Checked { config, places, tables }))
}

/// Puts an upstream with TLS in the place of [`SOME_URL`], which is the last word, if an option is
/// for such upstreams alone.
fn choose_stand_in(args: &mut [OsString]) {
    let Ok(Cli { task: Task::Proxy(options) }) = Cli::try_parse_from(&*args) else { return };
    let is_for_tls = options.forward.each.of_tls().next().is_some();
    if let Some(url) = args.last_mut().filter(|_| is_for_tls) {
        *url = SOME_TLS_URL.into();
    }
}

/// Returns the configuration of a whole command line; `None` if it is not one of a server.
fn configured(args: Vec<OsString>, tables: &Tables) -> Result<Option<Fingerprinted>, String> {
    match Cli::try_parse_from(args).map_err(|error| one_sentence(&error))?.task {
        Task::Serve(options) => {
            running::check_admin(&options.server)?;
            serve_configuration(*options, tables).map(Some)
        }
        Task::Proxy(options) => {
            running::check_admin(&options.server)?;
            proxy_configuration(*options).map(Some)
        }
        _ => Ok(None),
    }
}

fn serve_configuration(options: ServeOptions, tables: &Tables) -> Result<Fingerprinted, String> {
    let mut fingerprint = Fingerprint::default();
    fingerprint.add(&options);
    let ServeOptions { root, server, routes, forward, caching } = options;
    let forwarding = forwarding::of_routes(&routes, tables, &forward)?;
    let config = server_configuration(server, Some(root), forwarding, caching, tables)?;
    Ok(fingerprint.of(config))
}

/// Builds the configuration of a proxy.
fn proxy_configuration(options: ProxyOptions) -> Result<Fingerprinted, String> {
    let mut fingerprint = Fingerprint::default();
    fingerprint.add(&options);
    let ProxyOptions { urls, forward, caching, server } = options;
    let forwarding = forwarding::of_proxy(&urls, &forward)?;
    let config = server_configuration(server, None, forwarding, caching, &Tables::default())?;
    Ok(fingerprint.of(config))
}

/// Hash of everything that a configuration is made of, the content of files included.
#[derive(Default)]
struct Fingerprint(DefaultHasher);

impl Fingerprint {
    /// Adds a value, by its fields as they are printed for debugging.
    fn add(&mut self, value: &impl fmt::Debug) {
        // A hash takes whatever is written to it.
        let _ = write!(self, "{value:?}");
    }

    /// Adds the configuration, and returns it with its fingerprint.
    fn of(mut self, config: Config) -> Fingerprinted {
        self.add(&config);
        Fingerprinted { config, fingerprint: self.0.finish() }
    }
}

impl Write for Fingerprint {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn server_configuration(
    options: ServerOptions,
    root: Option<PathBuf>,
    forwarding: Forwarding,
    caching: CacheOptions,
    tables: &Tables,
) -> Result<Config, String> {
    let (strategy, types) = (strategy(&options)?, mime_types(&options)?);
    let (content, fields) = (content_options(&options, &strategy), fields(&options.header));
    let (cpus, error_pages) = (cpus(&options), own_pages(&types, &options)?);
    let (mechanism, mechanism_settings) = mechanism(&options)?;
    let (arch, arch_settings) = architecture(&options, &strategy)?;
    let (timeouts, policy) = (timeouts(&options), policy(&options, &strategy)?);
    check_forwarding(&forwarding, arch, &options.listen)?;
    let (tls, pages) = (acceptor(&options, arch)?, (&error_pages[..], &types));
    let tls_fields = [&fields[..], options.tls.fields().as_bytes()].concat();
    let (site_root, added) = (site_root(root.as_deref(), &content), [&fields[..], &tls_fields]);
    let (sites, site_roots) = sites(&options, &forwarding, site_root, added, pages, tables)?;
    Ok(Config {
        arch,
        arch_settings,
        mechanism: mechanism.name,
        mechanism_settings,
        slots: slot_search(&options.slots)?,
        root,
        listen: options.listen,
        tls,
        redirects_to_tls: options.tls.redirect_https == OnOff::On,
        tls_port: 0, // known once the server listens
        inherited: inherited_sockets(),
        share_listener: options.share_listener == OnOff::On,
        strategy,
        policy,
        syn_filter: options.syn_filter.kind(),
        syn_filter_at: options.syn_filter_at.place(),
        conns_max: saturated(options.max_conns),
        memory: options.memory,
        client_limits: options.clients.limits(),
        listenq: options.listenq,
        content,
        fields,
        tls_fields,
        error_pages,
        workers: options.workers.map_or_else(|| default_workers(&cpus), usize::from),
        cpus,
        cache: caching.cache(&forwarding.upstreams)?,
        upstreams: forwarding.upstreams,
        sites,
        site_roots,
        high_priority: forwarding.high_priority,
        buffers_bytes_max: forwarding.buffers_bytes_max,
        trusted: forwarding.trusted,
        proxy_protocol_in: forwarding.proxy_protocol_in,
        timeouts,
        rate_min: options.min_rate,
        requests_max: options.keepalive_requests.unwrap_or(u32::MAX),
        body_bytes_max: options.max_body.unwrap_or(BODY_BYTES_MAX),
        access_log: options.access_log.map(|path| access_log(&path, options.log_format)),
        request_ids: options.request_id == OnOff::On,
        stat_page: options.stat_page == OnOff::On,
        accept_queue_times: options.accept_queue_times == OnOff::On,
        phase_times: options.phase_times == OnOff::On,
        profile_calls: options.profile_calls == OnOff::On,
        bench_endpoints: options.bench_endpoints == OnOff::On,
        errors: options.error_log.log(),
        sandbox: options.sandbox.into(),
        user: options.user,
        admin_socket: options.admin.and_then(unix_path),
    })
}

/// Returns the server's own root, with what holds for directories there; one without a path if it
/// has none.
fn site_root(path: Option<&Path>, content: &content::Options) -> SiteRoot {
    let (index, listing) = (content.index.clone(), content.listing);
    SiteRoot { path: path.unwrap_or(Path::new("")).into(), index, listing }
}

/// Returns the path of a Unix socket, if an address is one.
fn unix_path(address: Address) -> Option<PathBuf> {
    match address {
        Address::Unix(path) => Some(path),
        Address::Tcp(_) | Address::Tls(_) => None,
    }
}

/// Returns the sites and their roots. They add to the fields of every reply, without TLS and with
/// it, and to the pages for errors, whose types are given.
fn sites(
    options: &ServerOptions,
    forwarding: &Forwarding,
    root: SiteRoot,
    [fields, tls_fields]: [&[u8]; 2],
    (error_pages, types): (&[ErrorPage], &content::MimeTypes),
    tables: &Tables,
) -> Result<(Option<Sites>, Vec<SiteRoot>), String> {
    let server = sites::Server {
        forwarding,
        root,
        fields,
        tls_fields,
        error_pages,
        body_bytes_max: options.max_body,
        unknown_host: options.unknown_host.into(),
        allowed_hosts: &options.allowed_host,
        read_pages: &|pages| read_pages(types, pages),
    };
    sites::build(&server, tables)
}

/// Returns the search for slots.
fn slot_search(spelling: &str) -> Result<slots::SlotSearch, String> {
    let row = slots::TABLE.iter().find(|row| row.spelling == spelling);
    Ok(row.ok_or("there is no such search for slots")?.search)
}

/// Returns the event mechanism with its settings.
fn mechanism(options: &ServerOptions) -> Result<(&'static readiness::Row, Settings), String> {
    let mechanism = readiness::TABLE.iter().find(|row| row.spelling == options.mechanism);
    let mechanism = mechanism.ok_or("there is no such mechanism")?;
    let settings = Settings::parse(mechanism.tunables, &options.mechanism_option);
    Ok((mechanism, settings.map_err(|why| format!("--mechanism-option: {why}"))?))
}

/// Returns what accepts TLS; `None` without it.
fn acceptor(
    options: &ServerOptions,
    arch: ArchitectureName,
) -> Result<Option<Arc<tls::Acceptor>>, String> {
    let acceptor = options.tls.acceptor(&options.listen, arch)?;
    if inherited_sockets() > 0 && acceptor.is_some() {
        return Err("sockets passed by a service manager speak no TLS".into());
    }
    Ok(acceptor)
}

/// Returns the accept policy with its settings.
fn policy(options: &ServerOptions, strategy: &Strategy) -> Result<accept::PolicyConfig, String> {
    Ok(accept::PolicyConfig {
        name: strategy.accept_policy,
        limit: strategy.accept_limit,
        target_ns: target_ns(options.delay_target)?,
        controls: options.controls_off,
        refusal: options.refuse,
        backlog: options.listenq.unsigned_abs(),
        // Both are known when the server starts.
        syn_filter: accept::SynFilter::None,
        eager: strategy.eager_read,
    })
}

/// Returns the processors that the loops are bound to, if any.
fn cpus(options: &ServerOptions) -> Vec<usize> {
    options.cpus.clone().map(|list| list.0).unwrap_or_default()
}

/// Returns the number of loops where none is given: one for each processor that they may use.
fn default_workers(cpus: &[usize]) -> usize {
    match cpus.len() {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

/// Checks that the architecture can forward what is to be forwarded, and that it is known who may
/// send headers of the PROXY protocol.
fn check_forwarding(
    forwarding: &Forwarding,
    arch: ArchitectureName,
    listen: &[Address],
) -> Result<(), String> {
    let row = arch.row();
    if let Some(why) = row.forwards_not.filter(|_| !forwarding.upstreams.is_empty()) {
        return Err(format!("--arch {} forwards no requests: {why}", row.spelling));
    }
    if let Some(why) =
        row.tls_not.filter(|_| forwarding.upstreams.iter().any(weir_server::Upstream::has_tls))
    {
        return Err(format!(
            "--arch {} speaks no TLS, which a server with https:// does: {why}",
            row.spelling
        ));
    }
    let sends_headers = forwarding.upstreams.iter().any(|each| each.proxy_protocol.is_some());
    if sends_headers && arch == ArchitectureName::Ring {
        return Err("--arch ring does not learn which address a client connected to, as \
                    --proxy-protocol-out must"
            .into());
    }
    if !forwarding.proxy_protocol_in {
        return Ok(());
    }
    if listen.iter().any(|address| matches!(address, Address::Tls(_))) {
        return Err(
            "--proxy-protocol-in is for addresses without TLS: its header would stand before \
                    the handshake"
                .into(),
        );
    }
    let has_tcp = listen.iter().any(|address| matches!(address, Address::Tcp(_)));
    if has_tcp && forwarding.trusted.is_empty() {
        return Err("--proxy-protocol-in is for the networks that --trusted-proxy names".into());
    }
    Ok(())
}

fn timeouts(options: &ServerOptions) -> Timeouts {
    Timeouts {
        header_ns: ns(options.header_timeout),
        body_ns: ns(options.body_timeout),
        idle_ns: ns(options.idle_timeout),
        request_ns: ns(options.request_timeout),
        linger_ns: ns(options.linger_timeout),
        drain_ns: ns(options.drain_timeout),
        rate_grace_ns: ns(options.min_rate_grace),
        stall_ns: ns(options.stall_timeout),
        user_ns: ns(options.user_timeout),
    }
}

fn access_log(value: &Path, format: LogFormat) -> AccessLog {
    AccessLog { target: log_target(value), format }
}

/// Returns the requested architecture and its settings.
fn architecture(
    options: &ServerOptions,
    strategy: &Strategy,
) -> Result<(ArchitectureName, Settings), String> {
    let row = architecture::TABLE
        .iter()
        .find(|row| row.spelling == options.arch)
        .ok_or("there is no such architecture")?;
    let settings = Settings::parse(row.tunables, &options.arch_option)
        .map_err(|why| format!("--arch-option: {why}"))?;
    if let Some(architecture::Exclusion { choice, why }) = row.excludes(strategy, &settings) {
        let (choice, name) = (choice.spelling(), row.spelling);
        return Err(format!("{choice} makes no sense with --arch {name}: {why}"));
    }
    if options.phase_times == OnOff::On && !row.has_phases {
        let name = row.spelling;
        let why = "its threads or processes wait, accept and serve each at times of its own";
        return Err(format!("--phase-times makes no sense with --arch {name}: {why}"));
    }
    Ok((row.name, settings))
}

/// Allowed range of the delay target: less is within the kernel's tick and the loop's own rounds,
/// more is no useful target.
const TARGETS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(60);

fn target_ns(target: Duration) -> Result<u64, String> {
    if TARGETS.contains(&target) {
        return Ok(ns(target));
    }
    Err("--delay-target is a time from 1ms to 1m".into())
}

fn strategy(options: &ServerOptions) -> Result<Strategy, String> {
    let preset = PRESETS
        .iter()
        .find(|preset| preset.name == options.preset)
        .ok_or("there is no such preset")?;
    let output = OUTPUTS
        .iter()
        .find(|row| row.spelling == options.output)
        .ok_or("there is no such output path")?;
    let base = preset.strategy;
    let switch = |given: Option<OnOff>, preset: bool| given.map_or(preset, |on| on == OnOff::On);
    let switches = &options.switches;
    let accept_policy = match (&options.accept_policy, options.accept_limit) {
        (Some(name), _) => name.parse()?,
        (None, Some(_)) => accept::PolicyName::Limit,
        (None, None) => base.accept_policy,
    };
    Ok(Strategy {
        accept_policy,
        accept_limit: options.accept_limit.unwrap_or(base.accept_limit),
        eager_read: switch(switches.eager_read, base.eager_read),
        eager_write: switch(switches.eager_write, base.eager_write),
        accept_on_close: switch(switches.accept_on_close, base.accept_on_close),
        full_read: switch(switches.full_read, base.full_read),
        caching: switch(switches.caching, base.caching),
        output: output.path,
    })
}

fn content_options(options: &ServerOptions, strategy: &Strategy) -> content::Options {
    let all = [Precompressed::Br, Precompressed::Zst, Precompressed::Gz];
    let wanted = match &options.precompressed[..] {
        // The papers' servers send files as they are.
        [] if options.preset == PRESETS[0].name => &all[..],
        [] => &[],
        given => given,
    };
    content::Options {
        index: options.index.clone(),
        listing: options.listing == OnOff::On,
        follow_symlinks: options.symlinks == Symlinks::Inside,
        dotfiles: options.dotfiles == OnOff::On,
        codings: wanted
            .iter()
            .filter_map(|variant| match variant {
                Precompressed::Br => Some(content::Coding::Brotli),
                Precompressed::Zst => Some(content::Coding::Zstd),
                Precompressed::Gz => Some(content::Coding::Gzip),
                Precompressed::None => None,
            })
            .collect(),
        compression: options.compression.compression(&options.preset, strategy.caching),
        mime: options.mime.clone(),
        charset: options.charset.clone(),
        cache_bytes_max: options.cache_size,
        open_files_max: options.open_files,
        memory_file_bytes_max: match strategy.output {
            OutputPath::Gather => options.sendfile_above,
            OutputPath::Cork => 0,
        },
        valid_ns: ns(options.cache_valid),
        caching: true, // the strategy decides
        waits: true,   // the architecture decides
    }
}

fn fields(headers: &[(String, String)]) -> Vec<u8> {
    let named = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("server"));
    let mut out = if named { Vec::new() } else { b"Server: weir\r\n".to_vec() };
    for (name, value) in headers {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    out
}

/// Returns the types of files by their names.
fn mime_types(options: &ServerOptions) -> Result<content::MimeTypes, String> {
    let of = |name| move |error| format!("{name}: {error}");
    let types = content::MimeTypes::new(&options.charset).map_err(of("--charset"))?;
    types.with(&options.mime).map_err(of("--mime"))
}

/// Reads the pages for error statuses that options name.
fn own_pages(
    types: &content::MimeTypes,
    options: &ServerOptions,
) -> Result<Vec<ErrorPage>, String> {
    read_pages(types, &options.error_page).map_err(|why| format!("--error-page: {why}"))
}

/// Reads pages for error statuses, which have types by their names.
fn read_pages(
    types: &content::MimeTypes,
    pages: &[(String, String)],
) -> Result<Vec<ErrorPage>, String> {
    pages
        .iter()
        .map(|(code, path)| {
            let code = code
                .parse()
                .ok()
                .filter(|code| (400..600).contains(code))
                .ok_or_else(|| format!("{code}: not an error status"))?;
            let body = files::read(path.as_ref()).map_err(|error| format!("{path}: {error}"))?;
            Ok(ErrorPage { code, content_type: types.content_type(path.as_bytes()), body })
        })
        .collect()
}

/// Number of sockets passed to this process by a service manager: sd_listen_fds(3).
fn inherited_sockets() -> usize {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(pid), Some(count)) if pid == std::process::id() => count as usize,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::{catalogue, servers};

    #[test]
    fn every_server_of_an_experiment_is_started_with_options_and_numbers_that_there_are() {
        let entries = catalogue::all().unwrap();
        assert!(!entries.is_empty());
        for entry in &entries {
            for server in &entry.experiment.server {
                let checked = servers::command_line(server).map(|words| check(&words));
                assert_eq!(checked.unwrap_or(Ok(())), Ok(()), "{}, server {}", entry.id, server.id);
            }
        }
    }

    #[test]
    fn a_proxy_has_no_root() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let root = |line: &str| {
            let Checked { config, .. } = checked(words(line), &[], false).unwrap().unwrap();
            assert!(config.site_roots.is_empty(), "{line}");
            config.root
        };
        assert_eq!(root("weir proxy http://127.0.0.1:80"), None);
        assert_eq!(root("weir serve dir"), Some("dir".into()));
    }

    #[test]
    fn the_default_delay_target_is_the_one_that_is_simulated() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            options: ServerOptions,
        }
        let Command { options } = Parser::parse_from(["serve"]);
        assert_eq!(target_ns(options.delay_target), Ok(accept::TARGET_NS));
    }

    #[test]
    fn a_combination_is_refused_in_the_servers_words() {
        let refused = |line: &str| {
            let words = ["serve", "."].into_iter().chain(line.split(' '));
            check(&words.map(str::to_owned).collect::<Vec<_>>()).expect_err(line)
        };
        assert!(refused("--arch fibre").contains("fibre"));
        assert!(refused("--arch threads --mechanism poll").contains("mechanism"));
        assert!(refused("--arch fiber --arch-option pool").contains("pool"));
        assert!(refused("--arch ring --arch-option sqpoll=2").contains("sqpoll"));
        assert!(refused("--arch-option pool=7").contains("pool"));
        assert!(refused("--cache 1M").contains("upstreams"));
        assert!(refused("--charset \u{7f} --mime x=\u{7f}").starts_with("--charset: "));
        assert!(refused("--mime x=\u{7f}").starts_with("--mime: "));
    }
}
