//! The upstream's side of a forwarded request: a connection to a server, the request sent on it,
//! and the reply received.

use std::io;

use weir_accept::upstream::Outcome;
use weir_http1::forward::{ReplyFacts, ReplyPart};
use weir_sys::client;
use weir_tls::client::Failure as TlsFailure;

use super::forward_failure::Failure;
use crate::context::WorkerContext;
use crate::context::forwarded::{Forward, Place};
use crate::context::output::Output;
use crate::upstream::Reuse;
use crate::upstream::sockets::UpstreamSocket;

/// Maximum number of bytes of a reply that wait in the output; more wait in its queue.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Maximum number of connections tried for one request, once any of it may have been sent.
const ATTEMPTS_MAX: u8 = 3;

/// Result of receiving a part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Bytes, or the end.
    Something,
    /// There was none: the server has sent nothing more.
    Nothing,
    /// The server may have sent more: there is no room for it, or a ring is still to receive it.
    Later,
}

/// Gets a connection to a server where there is none, sends what there is of the request, and has
/// `receive` receive the reply. Gives up a connection that has failed, so that the next turn tries
/// another. Returns whether anything moved.
pub(super) fn exchange(
    forward: &mut Forward,
    context: &mut WorkerContext,
    receive: impl FnOnce(&mut Forward, &mut WorkerContext) -> Result<Received, Failure>,
) -> Result<bool, Failure> {
    if forward.socket.is_none() {
        connect(forward, context)?;
    }
    let sent = send_request(forward, context);
    match (sent, receive(forward, context)) {
        (Ok(sent), Ok(received)) => Ok(sent || received == Received::Something),
        // The reply says why the request was not wanted.
        (Err(_), Ok(Received::Something)) => Ok(true),
        // What the server had sent before is still there. TLS would first wait for room to send.
        (Err(_), Ok(Received::Later))
            if !forward.exchange.is_unanswered() && forward.is_of_kernel(context) =>
        {
            Ok(false)
        }
        (_, Err(Failure::Malformed)) => Err(Failure::Malformed),
        _ => try_again(forward, context).map(|()| true),
    }
}

fn connect(forward: &mut Forward, context: &mut WorkerContext) -> Result<(), Failure> {
    let (now_ns, client) = (context.now_ns(), context.serving);
    let reuse = match forward.exchange.is_last() {
        true => Reuse::Never,
        false => reuse_for(forward.attempts, forward.exchange.is_harmless()),
    };
    forward.attempts += 1;
    forward.moved_ns = now_ns;
    let Some(upstreams) = &mut context.upstreams else { return Err(Failure::Unreachable) };
    let (upstream, tried, counters) = (forward.upstream, &mut forward.tried, &mut context.counters);
    let connected = upstreams.connect(upstream, client, reuse, tried, now_ns, counters);
    let slot = connected.map_err(|error| match error {
        lack if client::is_own_lack(&lack) || client::has_no_address(&lack) => Failure::Lacking,
        _ => Failure::Unreachable,
    })?;
    forward.socket = Some(slot);
    if let Some((upstream, server)) = upstreams.sockets.server_of(slot) {
        let server = &context.config.upstreams[upstream].servers[server];
        forward.exchange.set_server_host(server.authority.as_bytes());
    }
    Ok(())
}

/// Returns which kept connections a request may have after so many attempts.
fn reuse_for(attempts: u8, is_harmless: bool) -> Reuse {
    match attempts {
        0 if is_harmless => Reuse::Repeatable,
        0 => Reuse::Looked,
        // If the one before had ended, so may others have.
        _ => Reuse::Never,
    }
}

/// Sends what there is of the request. Returns whether any was sent.
fn send_request(forward: &mut Forward, context: &mut WorkerContext) -> Result<bool, Failure> {
    let Some((slot, upstreams)) = forward.socket.zip(context.upstreams.as_mut()) else {
        return Ok(false);
    };
    let Some(server) = upstreams.sockets.get(slot) else { return Err(Failure::BrokeOff) };
    match server.flush() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            server.blocked[1] = true;
            return Ok(false);
        }
        Err(error) => {
            server.note_failed_send(&error);
            return Err(Failure::BrokeOff);
        }
        Ok(()) => {}
    }
    let unsent = forward.exchange.unsent();
    let is_sent = forward.exchange.is_sent();
    if is_sent && forward.exchange.has_client_ended() && !forward.is_end_sent {
        if server.is_sending() {
            server.blocked[1] = true;
            return Ok(false);
        }
        forward.is_end_sent = true;
        // One that has gone is noticed by a read.
        return Ok(server.shutdown_write().is_ok());
    }
    if is_sent || server.blocked[1] && !server.is_ready {
        return Ok(false);
    }
    // What is in the pipe was taken when nothing else was left to be sent.
    let piped = forward.content_pipe.as_mut().filter(|pipe| pipe.held() > 0);
    let is_piped = piped.is_some();
    let sent = match piped {
        Some(pipe) => pipe.drain(server.fd()),
        None => server.write(unsent),
    };
    match sent {
        Ok(bytes) if is_piped => {
            server.blocked[1] = false;
            forward.exchange.note_passed_on(bytes);
            Ok(bytes > 0)
        }
        Ok(bytes) => {
            let is_new = std::mem::replace(&mut server.is_new, false);
            if let Some(is_resumed) = server.is_resumed().filter(|_| is_new) {
                context.counters.upstream_tls_full.add((!is_resumed).into());
                context.counters.upstream_tls_resumed.add(is_resumed.into());
            }
            server.blocked[1] = bytes < unsent.len();
            forward.exchange.note_sent(bytes);
            forward.release_content();
            if is_new {
                upstreams.note_connected(slot);
            }
            Ok(bytes > 0)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            server.blocked[1] = true;
            Ok(false)
        }
        Err(error) => {
            server.note_failed_send(&error);
            Err(failure_of(server, &error))
        }
    }
}

/// Records an error of a connection, and returns what it is to the request.
fn failure_of(server: &mut UpstreamSocket, error: &io::Error) -> Failure {
    server.note_error(error);
    if server.is_new { Failure::Unreachable } else { Failure::BrokeOff }
}

/// Returns whether an end that a read has found is that of a connection that was reset: the kernel
/// has told of it once, at the send.
fn is_cut(server: &UpstreamSocket, part: ReplyPart) -> bool {
    match part {
        ReplyPart::UntilClose => server.has_failed(),
        ReplyPart::Tunnel => server.was_reset(),
        _ => false,
    }
}

/// Receives what there is of the reply, as far as there is room.
pub(super) fn receive_reply(
    forward: &mut Forward,
    output: &mut Output,
    context: &mut WorkerContext,
) -> Result<Received, Failure> {
    let Some((slot, upstreams)) = forward.socket.zip(context.upstreams.as_mut()) else {
        return Ok(Received::Nothing);
    };
    let Some(server) = upstreams.sockets.get(slot) else { return Err(Failure::BrokeOff) };
    if !server.is_ready {
        return Ok(Received::Nothing);
    }
    let is_queued = !goes_to_output(forward, output);
    let Some((out, room)) = room(forward, output, context) else { return Ok(Received::Later) };
    let server = context.upstreams.as_mut().and_then(|upstreams| upstreams.sockets.get(slot));
    let Some(server) = server else { return Err(Failure::BrokeOff) };
    let bytes = match server.read(context.scratch.get_mut(..room).unwrap_or_default()) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(found_none(server)),
        Err(error) => return Err(failure_of(server, &error)),
    };
    if bytes == 0 {
        let is_new = server.is_new;
        if is_cut(server, forward.exchange.part()) {
            return Err(Failure::BrokeOff);
        }
        return match forward.exchange.end(out) {
            Ok(()) => Ok(Received::Something),
            Err(_) if is_new => Err(Failure::Unreachable),
            Err(_) => Err(Failure::BrokeOff),
        };
    }
    let unix_s = context.unix_ns() / 1_000_000_000;
    let close = forward.close || context.is_closing();
    forward.close = close;
    let config = &context.config;
    let lines = config.lines(forward.exchange.is_tls(), forward.ruling);
    let facts = ReplyFacts {
        close,
        date: context.date.at(unix_s),
        fields: lines.fields,
        more_fields: lines.for_page,
        removed: lines.removed,
        cache_control: lines.cache_control,
    };
    let received = context.scratch.get(..bytes).unwrap_or_default();
    let (before, is_awaited) = (out.len(), forward.exchange.status() == 0);
    let taken = forward.exchange.receive(received, out, &facts).map_err(|_| Failure::Malformed)?;
    if forward.exchange.part() == ReplyPart::Held {
        forward.handle_held_head(out, context);
        // The head that was to be added to is written; there may be trailers.
        let lines = context.config.lines(forward.exchange.is_tls(), forward.ruling);
        let facts = ReplyFacts { close, removed: lines.removed, ..ReplyFacts::default() };
        let (rest, before) = (context.scratch.get(taken..bytes), out.len());
        let rest = rest.unwrap_or_default();
        let received = forward.exchange.receive(rest, out, &facts);
        received.map_err(|_| Failure::Malformed)?;
        if forward.has_answer() {
            out.truncate(before);
        }
    }
    if is_queued {
        context.counters.proxy_buffered_bytes.add((out.len() - before) as u64);
    }
    forward.note_pace(is_awaited, context);
    note_emptied(forward, slot, context);
    forward.check_copy(context);
    Ok(Received::Something)
}

/// Returns what a read that would have blocked says of a connection: on a ring, what the socket has
/// is not seen by it.
fn found_none(server: &UpstreamSocket) -> Received {
    if server.ring.is_some() { Received::Later } else { Received::Nothing }
}

/// Records whether a reply has left its connection empty, and nothing can follow it.
fn note_emptied(forward: &Forward, slot: u32, context: &mut WorkerContext) {
    let is_over = is_over(forward.exchange.part(), forward.exchange.reply_bytes());
    let now_ns = context.now_ns();
    let server = context.upstreams.as_mut().and_then(|upstreams| upstreams.sockets.get(slot));
    if let Some(server) = server {
        server.emptied_ns = (is_over && !server.is_ready).then_some(now_ns);
    }
}

/// Returns whether nothing can follow a reply of which this has been received. One without content
/// by rule, such as that of HEAD, has some all the same from servers that are wrong.
fn is_over(part: ReplyPart, content_bytes: u64) -> bool {
    part == ReplyPart::Done && content_bytes > 0
}

/// Returns where what comes next of a reply is appended, and how much of it there is room for.
fn room<'o>(
    forward: &Forward,
    output: &'o mut Output,
    context: &WorkerContext,
) -> Option<(&'o mut Vec<u8>, usize)> {
    let bytes_max = context.scratch.len();
    if goes_to_output(forward, output) {
        if output.written >= OUTPUT_BYTES_MAX {
            output.bytes.drain(..output.written);
            output.written = 0;
        }
        return Some((&mut output.bytes, bytes_max));
    }
    let upstreams = context.upstreams.as_ref().filter(|_| may_queue(forward))?;
    let buffer_max = reply_buffer_max(forward, context);
    let (out, room) = output.queue.tail(upstreams.buffers(), buffer_max)?;
    Some((out, room.min(bytes_max)))
}

/// Returns the memory in which a reply may wait for its client, bytes: no more than there is of it
/// already while the memory budget is nearly used up.
fn reply_buffer_max(forward: &Forward, context: &WorkerContext) -> usize {
    if context.memory.is_short_now() {
        return 0;
    }
    context.config.upstreams[forward.upstream].reply_buffer_max
}

/// Returns whether there is room for more of a reply.
pub(super) fn has_room(forward: &Forward, output: &Output, context: &WorkerContext) -> bool {
    if forward.piped_bytes() > 0 && !forward.leaves_pipe(context) {
        return false;
    }
    let bytes_max = reply_buffer_max(forward, context);
    let pool = context.upstreams.as_ref().map(|upstreams| upstreams.buffers());
    goes_to_output(forward, output)
        || may_queue(forward) && pool.is_some_and(|pool| output.queue.may_take(pool, bytes_max))
}

/// Returns whether what comes next of a reply is appended to the output. While it is copied, as
/// many bytes may wait there as are copied, because others may wait for its end.
fn goes_to_output(forward: &Forward, output: &Output) -> bool {
    let is_first = forward.piped_bytes() == 0 && output.queue.is_empty();
    let has_room = output.bytes.len() - output.written < OUTPUT_BYTES_MAX;
    forward.is_copying() || is_first && has_room
}

/// Returns whether what the output has no room for waits in its queue: only for the sake of a
/// place, which another protocol and a stream of events have given back.
fn may_queue(forward: &Forward) -> bool {
    forward.place == Place::Has
}

/// Gives up a connect that takes too long, so that another server is tried, each once. Returns
/// false if there is none: the request fails.
pub(super) fn try_elsewhere(forward: &mut Forward, context: &mut WorkerContext) -> bool {
    note_tried(forward, context);
    let upstreams = context.upstreams.as_ref();
    let has_others =
        upstreams.is_some_and(|upstreams| upstreams.has_others(forward.upstream, &forward.tried));
    has_others && try_again(forward, context).is_ok()
}

/// Records that the connection of a request could not be made, or has failed, so that other servers
/// come first. One that was kept may have been closed for its own sake.
fn note_tried(forward: &mut Forward, context: &mut WorkerContext) {
    let Some((slot, upstreams)) = forward.socket.zip(context.upstreams.as_mut()) else { return };
    let is_reused = upstreams.sockets.get(slot).is_some_and(|socket| socket.is_reused);
    let server = upstreams.sockets.server_of(slot).filter(|_| !is_reused);
    if let Some((_, server)) = server.filter(|(_, server)| !forward.tried.contains(server)) {
        forward.tried.push(server);
    }
}

/// Gives up a connection that has failed, so that another is tried; not for a client that has gone.
fn try_again(forward: &mut Forward, context: &mut WorkerContext) -> Result<(), Failure> {
    let now_ns = context.now_ns();
    note_tried(forward, context);
    let Some((slot, upstreams)) = forward.socket.take().zip(context.upstreams.as_mut()) else {
        return Err(Failure::BrokeOff);
    };
    let server = upstreams.sockets.get(slot);
    let (is_reused, is_new, tls) = server.map_or((false, false, None), |server| {
        (server.is_reused, server.is_new, server.tls_failure())
    });
    // One that was kept may have been closed meanwhile, but not in the middle of a reply.
    if !is_reused || !forward.exchange.is_unanswered() {
        upstreams.note_failure(slot, now_ns);
    }
    upstreams.give_back(slot, false, now_ns);
    let is_wanted = !forward.has_departed(context);
    let may_repeat = is_wanted && (is_reused || is_new) && forward.exchange.may_repeat();
    let servers = context.config.upstreams[forward.upstream].servers.len();
    let has_others = servers > 1;
    // Where nothing was sent, no server is left out, and a kept connection may have been the first.
    let of_all = u8::try_from(servers + 1).unwrap_or(u8::MAX);
    let attempts_max = if is_new { ATTEMPTS_MAX.max(of_all) } else { ATTEMPTS_MAX };
    // Asked again, the same server would have the same certificate.
    let is_final = matches!(tls, Some(failure) if failure != TlsFailure::Cut) && !has_others;
    if !may_repeat || is_final || forward.attempts >= attempts_max {
        return Err(match tls {
            Some(TlsFailure::Cut) => Failure::BrokeOff,
            Some(failure) => Failure::Tls(failure),
            None if is_new => Failure::Unreachable,
            None => Failure::BrokeOff,
        });
    }
    context.counters.upstream_repeated.one();
    forward.exchange.repeat();
    Ok(())
}

/// Returns what a reply says of its server. A refusal is no answer, however soon it came, and a
/// limit that yields errors serves nobody.
pub(super) fn outcome_of(status: u16) -> Outcome {
    match status {
        429 | 503 => Outcome::Refused,
        500.. => Outcome::Failed,
        _ => Outcome::Answered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_can_be_repeated_has_a_connection_without_a_look() {
        for (attempts, is_harmless, reuse) in [
            (0, true, Reuse::Repeatable),
            (0, false, Reuse::Looked),
            (1, true, Reuse::Never),
            (1, false, Reuse::Never),
        ] {
            assert_eq!(reuse_for(attempts, is_harmless), reuse);
        }
    }

    #[test]
    fn a_reply_without_content_may_not_be_over() {
        assert!(is_over(ReplyPart::Done, 1));
        assert!(!is_over(ReplyPart::Done, 0));
        assert!(!is_over(ReplyPart::Body, 1));
        assert!(!is_over(ReplyPart::Held, 0));
    }
}
