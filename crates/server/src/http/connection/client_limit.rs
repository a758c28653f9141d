//! The part of the connection machine that keeps to the limits of each client.

use std::ops::ControlFlow;

use weir_accept::client_limits::Opened;
use weir_http1::{Framing, Request, Status};

use super::{Connection, Flow};
use crate::context::WorkerContext;
use crate::context::forwarded::Answered;
use crate::context::refusals::RefusalCause;
use crate::http::response::{self, Instead};

impl Connection {
    /// Counts it among its client's connections; returns false if that has as many as it may.
    pub(crate) fn count_for_client(&mut self, context: &WorkerContext) -> bool {
        let Some(clients) = &context.clients else { return true };
        let opened = clients.open(self.peer, &context.config);
        self.is_counted = opened == Opened::Counted;
        opened != Opened::Refused
    }

    /// Counts it down, if it was counted.
    pub(super) fn count_down_for_client(&mut self, context: &WorkerContext) {
        if std::mem::take(&mut self.is_counted)
            && let Some(clients) = &context.clients
        {
            clients.close(self.peer);
        }
    }

    /// Charges a request to its client, once however often it is parsed. If that has made as many
    /// as it may, answers with 429 (RFC 6585 section 4).
    pub(super) fn charge_client(
        &mut self,
        request: &Request<'_>,
        input: &[u8],
        context: &mut WorkerContext,
    ) -> ControlFlow<Flow> {
        if self.is_charged {
            return ControlFlow::Continue(());
        }
        let (head, _) = input.split_at(request.head_len);
        let found = || context.config.client(self.peer, head);
        let client = self.client.get_or_init(found).address();
        let over = context
            .clients
            .as_ref()
            .zip(client)
            .and_then(|(clients, client)| clients.request(client).err());
        self.is_charged = over.is_none();
        match over {
            None => ControlFlow::Continue(()),
            Some(retry_after_s) => {
                let client = client.unwrap_or_else(|| self.peer.ip());
                context.log_refusal(client, || RefusalCause::ClientRequests { retry_after_s });
                ControlFlow::Break(self.answer_too_many(retry_after_s, request, context))
            }
        }
    }

    /// Answers a request of a client that is to come again in so many seconds.
    fn answer_too_many(
        &mut self,
        seconds: u64,
        request: &Request<'_>,
        context: &mut WorkerContext,
    ) -> Flow {
        context.counters.refused_client_requests.one();
        // A body is not waited for: that would let it hold on to a connection for the body's time.
        let has_body = request.framing != Framing::None;
        let mut output = self.output.take().unwrap_or_else(|| context.take_output());
        output.linger |= has_body;
        let info = self.request_info();
        self.count_request(context);
        let logged = context.logged(request, self.peer, info.client);
        let retry_after = format!("Retry-After: {seconds}\r\n");
        let instead = Instead {
            status: Status::TOO_MANY_REQUESTS,
            fields: retry_after.as_bytes(),
            close: !request.keep_alive || has_body || info.is_last,
            logged,
        };
        response::answer_instead(instead, Answered::of(request), info, context, &mut output);
        self.taken += request.head_len;
        self.output = Some(output);
        self.begin_reply(context);
        ControlFlow::Continue(())
    }
}
