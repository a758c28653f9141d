//! Cost of each step on a core: the calls of the loop, and the kernel's work per packet, which is
//! done on the same core. Holds numbers only, not when or how often they are paid.

/// Costs in nanoseconds per operation. The defaults were measured on a virtual machine with Linux
/// 6.18.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// epoll_wait that returns without sleeping.
    pub wait: u64,
    /// Time from a packet to the return of an epoll_wait that slept.
    pub wake: u64,
    /// accept4 of a connection.
    pub accept: u64,
    /// accept4 that fails with EWOULDBLOCK.
    pub would_block: u64,
    /// recv.
    pub read: u64,
    /// send, including the kernel's work to transmit the data.
    pub write: u64,
    /// close of a connection, including its FIN.
    pub close: u64,
    /// epoll_ctl.
    pub epoll_ctl: u64,
    /// getsockopt(TCP_INFO), of the listening socket or of an accepted one.
    pub tcp_info: u64,
    /// getsockopt(SO_MEMINFO).
    pub meminfo: u64,
    /// A repeated listen(2), which changes the backlog.
    pub listen: u64,
    /// A change of the filter on the listening socket.
    pub filter: u64,
    /// Reset of a connection after its accept.
    pub refuse_rst: u64,
    /// Close of an unread connection after its accept.
    pub refuse_fin: u64,
    /// A 503 reply and the close of the connection after its accept.
    pub refuse_503: u64,
    /// A SYN that is answered.
    pub syn: u64,
    /// A SYN dropped because a queue is full.
    pub syn_dropped: u64,
    /// A SYN dropped by the filter.
    pub syn_filtered: u64,
    /// An ACK that ends a handshake or acknowledges data.
    pub ack: u64,
    /// A segment with data.
    pub data: u64,
    /// A FIN, the ACK of the server's FIN, or an RST.
    pub fin: u64,
    /// Maximum backlog of packet work in the kernel; packets beyond it are lost.
    pub packets_max: u64,
    /// Longest uninterrupted stretch of packet work before the loop runs.
    pub packets_burst: u64,
    /// Maximum share of a core that packets take from a loop that wants all of it, percent.
    pub packets_percent: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            wait: 1_200,
            wake: 3_000,
            accept: 4_000,
            would_block: 2_000,
            read: 1_500,
            write: 8_000,
            close: 6_000,
            epoll_ctl: 800,
            tcp_info: 400,
            meminfo: 400,
            listen: 1_000,
            filter: 10_000,
            refuse_rst: 5_000,
            refuse_fin: 6_000,
            refuse_503: 14_000,
            syn: 6_000,
            syn_dropped: 3_500,
            syn_filtered: 1_500,
            ack: 3_000,
            data: 3_000,
            fin: 3_000,
            packets_max: 4_000_000,
            packets_burst: 2_000_000,
            packets_percent: 90,
        }
    }
}

impl Costs {
    /// Costs of a pure queue as in queueing theory: only the requests themselves take time. A wait
    /// takes the shortest possible time, so that time advances even when the loop is idle.
    pub const FREE: Self = Self {
        wait: 1,
        wake: 0,
        accept: 0,
        would_block: 0,
        read: 0,
        write: 0,
        close: 0,
        epoll_ctl: 0,
        tcp_info: 0,
        meminfo: 0,
        listen: 0,
        filter: 0,
        refuse_rst: 0,
        refuse_fin: 0,
        refuse_503: 0,
        syn: 0,
        syn_dropped: 0,
        syn_filtered: 0,
        ack: 0,
        data: 0,
        fin: 0,
        packets_max: 4_000_000,
        packets_burst: 2_000_000,
        packets_percent: 90,
    };

    /// Returns the defaults, with the calls found in a profile set to their measured means: rows
    /// are `(name, count, time_ns)`, as in the `calls` of weir's statistics. Waits are left out,
    /// because their time is mostly sleep.
    pub fn calibrated<'a>(rows: impl IntoIterator<Item = (&'a str, u64, u64)>) -> Self {
        let mut costs = Self::default();
        for (name, count, time_ns) in rows {
            if let Some(mean) = time_ns.checked_div(count) {
                costs.set(name, mean);
            }
        }
        costs
    }

    fn set(&mut self, call: &str, ns: u64) {
        match call {
            "accept4" => self.accept = ns,
            "recvfrom" => self.read = ns,
            "sendto" | "writev" => self.write = ns,
            "close" => {
                self.close = ns;
                self.refuse_fin = ns;
            }
            "epoll_ctl" => self.epoll_ctl = ns,
            "getsockopt" => (self.tcp_info, self.meminfo) = (ns, ns),
            "listen" => self.listen = ns,
            _ => {}
        }
    }

    /// Returns the cost of a request on a busy core, with `requests` per connection and
    /// `service_ns` of work for each. Packets are included, refusals are not.
    pub fn served_ns(&self, service_ns: f64, requests: f64, eager: bool) -> f64 {
        let packets = self.syn + self.ack + self.fin;
        let calls = self.accept + self.close + if eager { 0 } else { self.epoll_ctl };
        let kept = if eager && requests > 1.0 { self.epoll_ctl } else { 0 };
        let change = if eager { 0 } else { 2 * self.epoll_ctl };
        let each = self.read + self.write + self.data + change;
        (packets + calls + kept) as f64 / requests + each as f64 + service_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_replaces_the_calls_it_has_rows_for() {
        let rows = [("accept4", 10, 50_000), ("close", 0, 0), ("poll", 3, 9), ("sendto", 2, 3_000)];
        let expected = Costs { accept: 5_000, write: 1_500, ..Costs::default() };
        assert_eq!(Costs::calibrated(rows), expected);
    }

    #[test]
    fn a_kept_connection_shares_its_beginning_and_end() {
        let costs = Costs::default();
        let (one, ten) = (costs.served_ns(1e4, 1.0, true), costs.served_ns(1e4, 10.0, true));
        assert_eq!(one, 10_000.0 + 1_500.0 + 8_000.0 + 3_000.0 + 12_000.0 + 10_000.0);
        assert_eq!(ten, 22_500.0 + 2_280.0);
    }
}
