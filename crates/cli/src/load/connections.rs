//! Assignment of requests to connections, and which side closes them: combines several options.
//! Pure.

use weir_load::workload::simple::SessionShape;

use super::options::{Close, ConnOptions, PerConn};

/// Connection behaviour that follows from the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionSettings {
    /// SessionShape of the workload's sessions.
    pub shape: SessionShape,
    /// Number of connections shared by all requests; 0: none.
    pub shared: usize,
    /// True if connections outlive sessions.
    pub keep_open: bool,
    /// True if this side closes connections by a reset.
    pub reset: bool,
    /// True if this side closes connections, and keeps their TIME_WAIT.
    pub client_closes: bool,
}

/// Derives the connection behaviour from `options`, in a closed loop or an open one.
///
/// # Errors
/// A sentence about two options that conflict.
pub(crate) fn conns(options: &ConnOptions, closed: bool) -> Result<ConnectionSettings, String> {
    let shared = options.conns.unwrap_or(0) as usize;
    let requests = match options.requests_per_conn {
        Some(PerConn::Unlimited) if closed || shared > 0 => 0,
        Some(PerConn::Unlimited) => {
            return Err("--requests-per-conn inf is for connections that stay, those of --closed \
                        or --conns"
                .into());
        }
        Some(PerConn::Requests(_)) if shared > 0 => {
            return Err("--conns are shared by all requests: leave out --requests-per-conn".into());
        }
        Some(PerConn::Requests(requests)) => requests,
        None => u32::from(shared == 0),
    };
    let keep_open = requests == 0;
    if keep_open && options.close.is_some() {
        return Err("connections that stay are not closed: leave out --close".into());
    }
    let pipeline = options.pipeline;
    if !keep_open && pipeline > requests {
        return Err(format!(
            "--pipeline {pipeline} is more than a connection's requests, {requests}: give \
             --requests-per-conn too"
        ));
    }
    let close = options.close.unwrap_or(Close::Server);
    Ok(ConnectionSettings {
        shape: SessionShape { requests, pipeline, close: !keep_open && close == Close::Server },
        shared,
        keep_open,
        reset: close == Close::Reset,
        client_closes: !keep_open && close == Close::Client,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tests::run_options;

    fn shaped(line: &str) -> Result<ConnectionSettings, String> {
        let options = run_options(line);
        conns(&options.conns, options.arrivals.closed.is_some())
    }

    #[test]
    fn a_connection_has_one_request_and_the_server_closes_it() {
        let expected = ConnectionSettings {
            shape: SessionShape { requests: 1, pipeline: 1, close: true },
            shared: 0,
            keep_open: false,
            reset: false,
            client_closes: false,
        };
        assert_eq!(shaped(""), Ok(expected));
        assert_eq!(shaped("--closed 5"), Ok(expected));
        assert_eq!(shaped("--close server"), Ok(expected));
    }

    #[test]
    fn connections_that_stay_never_ask_for_a_close() {
        for line in ["--conns 5", "--conns 5 --requests-per-conn inf", "--closed 5 --num-calls inf"]
        {
            let conns = shaped(line).unwrap();
            assert_eq!((conns.shape.requests, conns.shape.close), (0, false), "{line}");
            assert!(conns.keep_open && !conns.client_closes);
        }
        assert_eq!(shaped("--conns 5 --pipeline 4").unwrap().shape.pipeline, 4);
    }

    #[test]
    fn who_closes_decides_who_keeps_the_time_wait() {
        let client = shaped("--close client").unwrap();
        assert_eq!((client.shape.close, client.reset, client.client_closes), (false, false, true));
        let reset = shaped("--close reset").unwrap();
        assert_eq!((reset.shape.close, reset.reset, reset.client_closes), (false, true, false));
    }

    #[test]
    fn contradictory_options_are_refused() {
        let table = [
            ("--requests-per-conn inf", "--closed or --conns"),
            ("--conns 2 --requests-per-conn 3", "leave out --requests-per-conn"),
            ("--conns 2 --close reset", "leave out --close"),
            ("--closed 2 --requests-per-conn inf --close server", "leave out --close"),
            ("--pipeline 2", "--requests-per-conn"),
            ("--pipeline 5 --requests-per-conn 4", "more than a connection's requests, 4"),
        ];
        for (line, sentence) in table {
            let refused = shaped(line).unwrap_err();
            assert!(refused.contains(sentence), "{line}: {refused}");
        }
    }
}
