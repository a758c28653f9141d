//! Failures of forwarded requests: what the client is told (RFC 9209 section 2.3), and what is
//! counted.

use weir_accept::upstream::{Outcome, Reason};
use weir_http1::Status;
use weir_tls::client::Failure as TlsFailure;

use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;
use crate::context::read_rate::RateVerdict;
use crate::upstream::count_refusal;

/// Failure of a forwarded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Refused(Reason),
    /// Its checks find every server down.
    Unavailable,
    /// The server could not be reached.
    Unreachable,
    /// There is no descriptor, memory or port here for a connection to the server.
    Lacking,
    /// The server broke off before its reply was complete.
    BrokeOff,
    /// TLS with the server has failed.
    Tls(TlsFailure),
    /// The reply is not HTTP, or its framing is in doubt.
    Malformed,
    /// The request's content is malformed.
    Content(Status),
    /// The client sends its content, or takes the reply, too slowly, or not at all.
    SlowClient(RateVerdict),
    /// The whole of it has taken too long (`--request-timeout`).
    Overdue {
        /// True if its client is what is waited for.
        awaits_client: bool,
    },
    Timeout(Limit),
}

/// Time limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// For a connect.
    Connect,
    /// From the request to the first byte of the reply.
    FirstByte,
    /// Between two bytes of the reply.
    Read,
    /// Between two bytes that the server takes of the request.
    Write,
    /// For the request as a whole.
    Whole,
}

impl Failure {
    pub(super) fn status(self) -> Status {
        match self {
            Self::Refused(_) | Self::Lacking => Status::SERVICE_UNAVAILABLE,
            Self::Unavailable
            | Self::Unreachable
            | Self::BrokeOff
            | Self::Tls(_)
            | Self::Malformed => Status::BAD_GATEWAY,
            Self::Content(status) => status,
            Self::SlowClient(_) | Self::Overdue { awaits_client: true } => Status::REQUEST_TIMEOUT,
            Self::Overdue { .. } | Self::Timeout(_) => Status::GATEWAY_TIMEOUT,
        }
    }

    /// Returns the field lines that say what happened (RFC 9209 section 2.3, RFC 9110 section
    /// 10.2.3).
    pub(super) fn fields(self) -> &'static [u8] {
        match self {
            Self::Refused(_) => {
                b"Retry-After: 1\r\nProxy-Status: weir; error=connection_limit_reached\r\n"
            }
            Self::Unavailable => b"Proxy-Status: weir; error=destination_unavailable\r\n",
            Self::Unreachable => b"Proxy-Status: weir; error=connection_refused\r\n",
            Self::Lacking => {
                b"Retry-After: 1\r\nProxy-Status: weir; error=proxy_internal_error\r\n"
            }
            Self::BrokeOff => b"Proxy-Status: weir; error=connection_terminated\r\n",
            Self::Tls(TlsFailure::Certificate) => {
                b"Proxy-Status: weir; error=tls_certificate_error\r\n"
            }
            Self::Tls(TlsFailure::Alert) => b"Proxy-Status: weir; error=tls_alert_received\r\n",
            Self::Tls(TlsFailure::Protocol) => b"Proxy-Status: weir; error=tls_protocol_error\r\n",
            Self::Tls(TlsFailure::Cut) => b"Proxy-Status: weir; error=connection_terminated\r\n",
            Self::Malformed => b"Proxy-Status: weir; error=http_protocol_error\r\n",
            Self::Content(_) | Self::SlowClient(_) | Self::Overdue { awaits_client: true } => {
                b"Proxy-Status: weir; error=http_request_error\r\n"
            }
            Self::Timeout(Limit::Connect) => b"Proxy-Status: weir; error=connection_timeout\r\n",
            Self::Timeout(Limit::FirstByte | Limit::Read) => {
                b"Proxy-Status: weir; error=connection_read_timeout\r\n"
            }
            Self::Timeout(Limit::Write) => {
                b"Proxy-Status: weir; error=connection_write_timeout\r\n"
            }
            Self::Overdue { .. } | Self::Timeout(Limit::Whole) => {
                b"Proxy-Status: weir; error=http_response_timeout\r\n"
            }
        }
    }

    /// Returns the reason for the close of a client's connection whose reply has begun.
    pub(super) fn close_reason(self) -> CloseReason {
        match self {
            Self::Overdue { .. } | Self::Timeout(_) => CloseReason::RequestTimeout,
            Self::SlowClient(RateVerdict::Stalled) => CloseReason::StallTimeout,
            Self::SlowClient(_) => CloseReason::RateTimeout,
            _ => CloseReason::Upstream,
        }
    }

    /// Returns what Cache-Status says of a stale reply that is sent instead.
    pub(super) fn replaced_by_stale(self) -> &'static str {
        match self {
            Self::Refused(_) => "hit; detail=stale-under-overload",
            _ => "hit; detail=stale-if-error",
        }
    }

    /// Returns what the failure says of the server.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::Lacking | Self::Content(_) | Self::SlowClient(_) | Self::Overdue { .. } => {
                Outcome::Abandoned
            }
            _ => Outcome::Failed,
        }
    }

    pub(super) fn count(self, context: &mut WorkerContext) {
        let counters = &mut context.counters;
        match self {
            Self::Refused(reason) => count_refusal(reason, counters),
            Self::Unavailable => counters.upstream_unavailable.one(),
            Self::Lacking => counters.upstream_lacks.one(),
            Self::Unreachable | Self::BrokeOff | Self::Malformed => counters.upstream_failed.one(),
            Self::Tls(failure) => {
                counters.upstream_failed.one();
                match failure {
                    TlsFailure::Certificate => counters.upstream_tls_certificate.one(),
                    TlsFailure::Alert => counters.upstream_tls_alert.one(),
                    TlsFailure::Protocol => counters.upstream_tls_protocol.one(),
                    TlsFailure::Cut => {}
                }
            }
            Self::Content(_) => counters.refused_requests.one(),
            // Counted as the reason for the close. What is overdue says nothing of the server.
            Self::SlowClient(_) | Self::Overdue { .. } => {}
            Self::Timeout(limit) => {
                counters.upstream_timeouts.one();
                match limit {
                    Limit::Connect => counters.upstream_timeout_connect.one(),
                    Limit::FirstByte => counters.upstream_timeout_first_byte.one(),
                    Limit::Read | Limit::Write => counters.upstream_timeout_idle.one(),
                    Limit::Whole => counters.upstream_timeout_whole.one(),
                }
            }
        }
    }
}
