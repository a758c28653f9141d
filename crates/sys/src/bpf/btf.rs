//! The kernel's description of its own types (Linux, Documentation/bpf/btf.rst): where a member of
//! a structure is, which number an enumerator has, and which arguments a tracepoint. They differ
//! from kernel to kernel, so that nothing that reads kernel memory may assume them.

use std::io;

/// Types of a kernel.
pub(crate) struct Btf {
    bytes: Vec<u8>,
    /// Positions of the descriptions; a type's number is its index. Number 0 is `void`, which has
    /// none.
    types: Vec<usize>,
    strings: usize,
}

/// Kinds of types that are looked into.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
    /// The highest known. The size of the description of another is unknown too.
    pub(super) const LAST: u32 = ENUM64;
}

/// A type's description: its kind and name, the number of its parts, and the type it refers to.
#[derive(Clone, Copy)]
struct Type {
    kind: u32,
    name: u32,
    len: usize,
    /// Whether the offsets of members have the widths of bit fields in their upper 8 bits.
    has_widths: bool,
    refers: u32,
    /// Position of its parts.
    parts: usize,
}

const MAGIC: u16 = 0xeb9f;
/// Size of the part of a description that all kinds have.
const HEAD_BYTES: usize = 12;
/// Limit on types within types that are followed; the kernel's own is 32.
const DEPTH_MAX: u32 = 32;

impl Btf {
    /// Reads the types of the running kernel.
    ///
    /// # Errors
    /// ENOENT when the kernel was built without them; a sentence when they make no sense.
    pub(crate) fn of_this_kernel() -> io::Result<Self> {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux")?;
        Self::parse(bytes).ok_or_else(|| io::Error::other("the kernel's types make no sense"))
    }

    /// Finds all types; `None` unless the bytes are such a description, in this machine's byte
    /// order.
    fn parse(bytes: Vec<u8>) -> Option<Self> {
        let mut btf = Self { bytes, types: vec![0], strings: 0 };
        if u16::from_ne_bytes(*btf.bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let number = |at| btf.number(at).map(|number| number as usize);
        let header = number(4)?;
        let mut at = header.checked_add(number(8)?)?;
        let end = at.checked_add(number(12)?)?;
        let strings = header.checked_add(number(16)?)?;
        let mut types = vec![0];
        while at < end {
            types.push(at);
            at = btf.read(at)?.end()?;
        }
        (btf.types, btf.strings) = (types, strings);
        Some(btf)
    }

    /// Returns the offset in bytes of a member, given by the names that lead to it, in a structure.
    /// Members of unnamed structures and unions count as the outer one's.
    pub(crate) fn offset(&self, structure: &str, path: &[&str]) -> Option<u32> {
        let is_it = |it: &Type| it.is_composite() && self.is_called(it, structure);
        let found = self.all().filter(is_it);
        // A name may have several types, of which the others have no such member.
        found
            .filter_map(|it| self.offset_in(it, path, 0))
            .next()
            .filter(|bits| bits % 8 == 0)
            .map(|bits| bits / 8)
    }

    /// Returns the value of an enumerator.
    pub(crate) fn enumerator(&self, enumeration: &str, name: &str) -> Option<u32> {
        let is_it = |it: &Type| it.kind == kind::ENUM && self.is_called(it, enumeration);
        let values = self
            .all()
            .filter(is_it)
            .flat_map(|it| (0..it.len).map(move |index| it.parts + index * 8));
        let mut named =
            values.filter(|at| self.number(*at).is_some_and(|to| self.text(to) == Some(name)));
        self.number(named.next()? + 4)
    }

    /// Returns the number of a tracepoint's type.
    pub(crate) fn tracepoint(&self, name: &str) -> Option<u32> {
        let name = format!("btf_trace_{name}");
        let is_it = |it: Type| it.kind == kind::TYPEDEF && self.is_called(&it, &name);
        self.all().position(is_it).map(|index| index as u32 + 1)
    }

    /// Returns the index of a tracepoint's argument whose type is an enumeration or a pointer to a
    /// structure, of this name. The tracepoint is given by the number of its type.
    pub(crate) fn argument(&self, tracepoint: u32, type_name: &str) -> Option<usize> {
        let pointer = self.get(self.get(tracepoint)?.refers)?;
        let function = self.get(pointer.refers).filter(|it| it.kind == kind::FUNC_PROTO)?;
        let is_wanted = |index: &usize| {
            let argument = self.number(function.parts + index * 8 + 4);
            argument
                .and_then(|argument| self.pointed(argument))
                .is_some_and(|it| self.is_called(&it, type_name))
        };
        // The first argument is the tracepoint's own, and is not passed to programs.
        (1..function.len).find(is_wanted).map(|index| index - 1)
    }

    fn all(&self) -> impl Iterator<Item = Type> + '_ {
        // All of them can be read, or there would be no position.
        self.types.iter().skip(1).map_while(|at| self.read(*at))
    }

    /// Returns a type by its number; `None` for `void`.
    fn get(&self, number: u32) -> Option<Type> {
        self.read(*self.types.get(number as usize).filter(|_| number > 0)?)
    }

    /// Returns the offset in bits of a member of a structure or union, which is `depth` deep.
    fn offset_in(&self, outer: Type, path: &[&str], depth: u32) -> Option<u32> {
        let (first, rest) = path.split_first()?;
        if !outer.is_composite() || depth > DEPTH_MAX {
            return None;
        }
        (0..outer.len).find_map(|index| {
            let at = outer.parts + index * 12;
            let bits = self.number(at + 8)?;
            let bits = if outer.has_widths { bits & 0xff_ffff } else { bits };
            let within = |path| {
                let member = self.named(self.number(at + 4)?)?;
                Some(bits + self.offset_in(member, path, depth + 1)?)
            };
            match self.text(self.number(at)?)? {
                "" => within(path),
                name if name == *first && rest.is_empty() => Some(bits),
                name if name == *first => within(rest),
                _ => None,
            }
        })
    }

    /// Returns a type without the qualifiers and other names around it.
    fn named(&self, number: u32) -> Option<Type> {
        use kind::{CONST, TYPE_TAG, TYPEDEF, VOLATILE};
        let mut it = self.get(number)?;
        for _ in 0..DEPTH_MAX {
            if !matches!(it.kind, TYPEDEF | VOLATILE | CONST | TYPE_TAG) {
                return Some(it);
            }
            it = self.get(it.refers)?;
        }
        None
    }

    /// Returns a type or, if it is a pointer, what it points to.
    fn pointed(&self, number: u32) -> Option<Type> {
        let it = self.named(number)?;
        if it.kind == kind::PTR { self.named(it.refers) } else { Some(it) }
    }

    fn is_called(&self, it: &Type, name: &str) -> bool {
        self.text(it.name) == Some(name)
    }

    fn read(&self, at: usize) -> Option<Type> {
        let info = self.number(at + 4)?;
        Some(Type {
            kind: info >> 24 & 0x1f,
            name: self.number(at)?,
            len: (info & 0xffff) as usize,
            has_widths: info >> 31 == 1,
            refers: self.number(at + 8)?,
            parts: at + HEAD_BYTES,
        })
    }

    fn number(&self, at: usize) -> Option<u32> {
        self.bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    fn text(&self, at: u32) -> Option<&str> {
        let from = self.bytes.get(self.strings + at as usize..)?;
        std::str::from_utf8(from.split(|byte| *byte == 0).next()?).ok()
    }
}

impl Type {
    /// Returns the position behind the description; `None` for an unknown kind.
    fn end(&self) -> Option<usize> {
        use kind::{
            ARRAY, DATASEC, DECL_TAG, ENUM, ENUM64, FUNC_PROTO, INT, LAST, STRUCT, UNION, VAR,
        };
        let bytes = match self.kind {
            INT | VAR | DECL_TAG => 4,
            ARRAY => 12,
            STRUCT | UNION | DATASEC | ENUM64 => 12 * self.len,
            ENUM | FUNC_PROTO => 8 * self.len,
            1..=LAST => 0,
            _ => return None,
        };
        self.parts.checked_add(bytes)
    }

    fn is_composite(&self) -> bool {
        matches!(self.kind, kind::STRUCT | kind::UNION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A description under construction.
    #[derive(Default)]
    struct Builder {
        types: Vec<u8>,
        strings: Vec<u8>,
        len: u32,
    }

    impl Builder {
        fn text(&mut self, text: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            if text.is_empty() {
                return 0;
            }
            let at = self.strings.len() as u32;
            self.strings.extend(text.bytes().chain([0]));
            at
        }

        /// Adds a type and returns its number; `info` has its kind, and the number of its parts.
        fn add(&mut self, name: &str, info: u32, refers: u32, parts: &[u32]) -> u32 {
            let name = self.text(name);
            for number in [&[name, info, refers], parts].concat() {
                self.types.extend(number.to_ne_bytes());
            }
            self.len += 1;
            self.len
        }

        fn of_kind(&mut self, kind: u32, name: &str, refers: u32) -> u32 {
            self.add(name, kind << 24, refers, &[])
        }

        /// Adds a structure of members with their types and offsets in bits.
        fn structure(&mut self, name: &str, widths: bool, members: &[(&str, u32, u32)]) -> u32 {
            let members: Vec<_> =
                members.iter().flat_map(|&(name, of, bits)| [self.text(name), of, bits]).collect();
            let len = members.len() as u32 / 3;
            let info = u32::from(widths) << 31 | kind::STRUCT << 24 | len;
            self.add(name, info, 0, &members)
        }

        fn bytes(&self) -> Vec<u8> {
            let [types, strings] = [&self.types, &self.strings].map(|part| part.len() as u32);
            let mut bytes = MAGIC.to_ne_bytes().to_vec();
            bytes.extend([1, 0]);
            for number in [24, 0, types, types, strings] {
                bytes.extend(number.to_ne_bytes());
            }
            [&bytes[..], &self.types, &self.strings].concat()
        }
    }

    fn some_types() -> Vec<u8> {
        let mut types = Builder::default();
        let int = types.add("int", kind::INT << 24, 4, &[32]);
        let inner = types.structure("", false, &[("a", int, 0), ("b", int, 32)]);
        let network = types.structure("network", false, &[("name", int, 64)]);
        let alias = types.of_kind(kind::TYPEDEF, "network_t", network);
        let qualified = types.of_kind(kind::CONST, "", alias);
        types.structure("sock", false, &[("other", int, 0)]);
        let sock = types.structure(
            "sock",
            true,
            &[("", inner, 64), ("net", qualified, 128), ("flag", int, 1 << 24 | 257)],
        );
        let name = [types.text("FIRST"), types.text("SECOND")];
        let reason = types.add("reason", kind::ENUM << 24 | 2, 4, &[name[0], 7, name[1], 9]);
        let to_sock = types.of_kind(kind::PTR, "", sock);
        let call =
            types.add("", kind::FUNC_PROTO << 24 | 3, 0, &[0, to_sock, 0, reason, 0, to_sock]);
        let to_call = types.of_kind(kind::PTR, "", call);
        types.of_kind(kind::TYPEDEF, "btf_trace_event", to_call);
        types.bytes()
    }

    #[test]
    fn members_are_found_through_unnamed_structures_and_qualifiers() {
        let btf = Btf::parse(some_types()).unwrap();
        assert_eq!(btf.offset("sock", &["b"]), Some(12));
        assert_eq!(btf.offset("sock", &["net", "name"]), Some(24));
        assert_eq!(btf.offset("sock", &["other"]), Some(0));
        for absent in [&["c"][..], &["net", "id"], &["flag"], &["a", "b"], &[]] {
            assert_eq!(btf.offset("sock", absent), None, "{absent:?}");
        }
        assert_eq!(btf.offset("socket", &["b"]), None);
    }

    #[test]
    fn enumerators_and_arguments_are_found_by_name() {
        let btf = Btf::parse(some_types()).unwrap();
        assert_eq!(btf.enumerator("reason", "SECOND"), Some(9));
        assert_eq!(btf.enumerator("reason", "THIRD"), None);
        let event = btf.tracepoint("event").unwrap();
        assert_eq!(btf.argument(event, "reason"), Some(0));
        assert_eq!(btf.argument(event, "sock"), Some(1));
        assert_eq!(btf.argument(event, "network"), None);
        assert_eq!(btf.argument(0, "sock"), None);
        assert_eq!(btf.tracepoint("happening"), None);
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_an_answer_of_none() {
        let whole = some_types();
        for len in 0..whole.len() {
            if let Some(btf) = Btf::parse(whole[..len].to_vec()) {
                btf.offset("sock", &["net", "name"]);
                btf.enumerator("reason", "SECOND");
                btf.tracepoint("event").and_then(|event| btf.argument(event, "sock"));
            }
        }
        let mut unknown = Builder::default();
        unknown.of_kind(kind::LAST + 1, "", 0);
        assert!(Btf::parse(unknown.bytes()).is_none());
        assert!(Btf::parse(b"no types at all, of course".to_vec()).is_none());
    }

    #[test]
    fn a_structure_in_itself_ends() {
        let mut types = Builder::default();
        types.structure("round", false, &[("", 1, 0)]);
        types.of_kind(kind::TYPEDEF, "again", 2);
        let btf = Btf::parse(types.bytes()).unwrap();
        assert_eq!(btf.offset("round", &["a"]), None);
        assert!(btf.named(2).is_none());
    }
}
