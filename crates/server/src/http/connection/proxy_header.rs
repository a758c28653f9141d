//! The header of the PROXY protocol, before the first request of a connection from a proxy.

use std::net::SocketAddr;
use std::ops::ControlFlow;

use weir_http1::proxy_protocol::{self, Endpoints, Header};
use weir_sys::socket::UNKNOWN_PEER;

use super::{Action, Connection, Flow};
use crate::context::close_reason::CloseReason;

impl Connection {
    /// Takes the header from the input. Until it is whole the client has sent nothing, and the
    /// deadline stays what it was at the accept.
    pub(super) fn take_proxy_header(&mut self) -> Flow {
        match proxy_protocol::parse(self.unread_input()) {
            Header::Partial => {
                self.has_received = false;
                ControlFlow::Break(Action::Read)
            }
            Header::Complete { bytes, endpoints } => {
                self.expects_proxy_header = false;
                self.skip_input(bytes);
                self.has_received = self.unread() > 0;
                if let Some(Endpoints { source, destination }) = endpoints {
                    self.peer = source;
                    self.set_destination(destination);
                }
                ControlFlow::Continue(())
            }
            Header::Malformed => ControlFlow::Break(self.close_for(CloseReason::ProxyHeader)),
        }
    }

    /// Sets the address that the client connected to.
    pub(crate) fn set_destination(&mut self, destination: SocketAddr) {
        self.destination = Some(Box::new(destination));
    }

    /// Returns the ends of the client's connection, if they are known.
    pub(super) fn endpoints(&self) -> Option<Endpoints> {
        let destination = **self.destination.as_ref()?;
        (self.peer != UNKNOWN_PEER).then_some(Endpoints { source: self.peer, destination })
    }
}
