//! Request methods: those that a server of files answers or refuses by name, and the rest of IANA's
//! registry, which are for the servers that requests are forwarded to.

/// A request method that is known. The caller decides which are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant but the last is its own name")]
pub enum Method {
    Get,
    Head,
    Options,
    Post,
    Put,
    Delete,
    Connect,
    Trace,
    Patch,
    Purge,
    /// Another of the registry.
    Other(&'static Registered),
}

/// A method as IANA's registry has it (RFC 9110 section 16.1).
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Registered {
    name: &'static str,
    is_safe: bool,
    is_idempotent: bool,
}

impl Method {
    /// Returns the method as written on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Purge => "PURGE",
            Self::Other(registered) => registered.name,
        }
    }

    /// Returns whether it is safe: it asks for no change (RFC 9110 section 9.2.1).
    #[must_use]
    pub const fn is_safe(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::Options | Self::Trace => true,
            Self::Other(registered) => registered.is_safe,
            _ => false,
        }
    }

    /// Returns whether it is idempotent: a request that arrives twice does what one does (RFC 9110
    /// section 9.2.2).
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        match self {
            Self::Post | Self::Patch | Self::Connect => false,
            Self::Other(registered) => registered.is_idempotent,
            _ => true,
        }
    }

    /// Parses a method. Methods are case-sensitive.
    pub(crate) fn from_bytes(token: &[u8]) -> Option<Self> {
        Some(match token {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"OPTIONS" => Self::Options,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            b"PURGE" => Self::Purge,
            _ => Self::Other(OTHERS.iter().find(|other| other.name.as_bytes() == token)?),
        })
    }
}

/// The registry but for the methods above, `*`, which is none, and PRI, which no request has (RFC
/// 9113 section 11.6).
static OTHERS: [Registered; 30] = [
    unsafe_but_idempotent("ACL"),
    unsafe_but_idempotent("BASELINE-CONTROL"),
    unsafe_but_idempotent("BIND"),
    unsafe_but_idempotent("CHECKIN"),
    unsafe_but_idempotent("CHECKOUT"),
    unsafe_but_idempotent("COPY"),
    unsafe_but_idempotent("LABEL"),
    unsafe_but_idempotent("LINK"),
    Registered { name: "LOCK", is_safe: false, is_idempotent: false },
    unsafe_but_idempotent("MERGE"),
    unsafe_but_idempotent("MKACTIVITY"),
    unsafe_but_idempotent("MKCALENDAR"),
    unsafe_but_idempotent("MKCOL"),
    unsafe_but_idempotent("MKREDIRECTREF"),
    unsafe_but_idempotent("MKWORKSPACE"),
    unsafe_but_idempotent("MOVE"),
    unsafe_but_idempotent("ORDERPATCH"),
    safe("PROPFIND"),
    unsafe_but_idempotent("PROPPATCH"),
    safe("QUERY"),
    unsafe_but_idempotent("REBIND"),
    safe("REPORT"),
    safe("SEARCH"),
    unsafe_but_idempotent("UNBIND"),
    unsafe_but_idempotent("UNCHECKOUT"),
    unsafe_but_idempotent("UNLINK"),
    unsafe_but_idempotent("UNLOCK"),
    unsafe_but_idempotent("UPDATE"),
    unsafe_but_idempotent("UPDATEREDIRECTREF"),
    unsafe_but_idempotent("VERSION-CONTROL"),
];

const fn safe(name: &'static str) -> Registered {
    Registered { name, is_safe: true, is_idempotent: true }
}

const fn unsafe_but_idempotent(name: &'static str) -> Registered {
    Registered { name, is_safe: false, is_idempotent: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_reads_back_as_itself() {
        let names = "GET HEAD OPTIONS POST PUT DELETE CONNECT TRACE PATCH PURGE";
        for name in names.split(' ').chain(OTHERS.iter().map(|other| other.name)) {
            assert_eq!(Method::from_bytes(name.as_bytes()).map(Method::as_str), Some(name));
        }
        for none in ["get", "", "propfind", "BREW", "PRI", "*"] {
            assert_eq!(Method::from_bytes(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn the_registry_says_what_is_safe_and_what_may_arrive_twice() {
        let of = |name: &str| Method::from_bytes(name.as_bytes()).unwrap();
        for name in ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "QUERY", "REPORT", "SEARCH"] {
            assert!(of(name).is_safe() && of(name).is_idempotent(), "{name}");
        }
        for name in ["PUT", "DELETE", "MKCOL", "MOVE", "COPY", "PROPPATCH", "UNLOCK"] {
            assert!(!of(name).is_safe() && of(name).is_idempotent(), "{name}");
        }
        for name in ["POST", "PATCH", "CONNECT", "LOCK"] {
            assert!(!of(name).is_safe() && !of(name).is_idempotent(), "{name}");
        }
    }
}
