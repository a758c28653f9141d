//! The user that a process becomes once it has what takes a privilege: found by name
//! (getpwnam_r(3), getgrnam_r(3), getgrouplist(3)), and become for good (setresuid(2)).

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::check;

/// Room for the strings of an entry, bytes; a longer entry is refused with ERANGE.
const ENTRY_BYTES: usize = 16 << 10;

/// Maximum number of groups of a user that are taken.
const GROUPS_MAX: usize = 1024;

/// The id that stands for no change in setresuid(2) and its like: nobody's.
const NO_ID: u32 = u32::MAX;

/// A user other than root, with a group and supplementary groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl User {
    /// Finds a user by name or number. With a group, that is its only one; without, it has those
    /// of the system's databases.
    ///
    /// # Errors
    /// NotFound, with a sentence: there is no such user or group. InvalidInput: it is root. Others
    /// of getpwnam_r(3).
    pub fn find(name: &str, group: Option<&str>) -> io::Result<Self> {
        let number = name.parse().ok();
        let entry = match by_name(name)? {
            None => number.map(by_number).transpose()?.flatten(),
            found => found,
        };
        let uid = entry.as_ref().map(|entry| entry.uid).or(number).filter(|&id| id != NO_ID);
        let uid = uid.ok_or_else(|| absent("user", name))?;
        if uid == 0 {
            let why = "root is no user to become: it has all privileges";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (gid, groups) = match (group, entry) {
            (Some(group), _) => {
                let gid = group_id(group)?.or_else(|| group.parse().ok());
                let gid = gid.filter(|&id| id != NO_ID).ok_or_else(|| absent("group", group))?;
                (gid, vec![gid])
            }
            (None, Some(entry)) => (entry.gid, groups_of(&entry.name, entry.gid)?),
            (None, None) => {
                let why = format!("user {name} has no entry that says its group: {name}:GROUP");
                return Err(io::Error::new(io::ErrorKind::NotFound, why));
            }
        };
        Ok(Self { uid, gid, groups })
    }

    /// Returns the ids of the user and the group.
    pub fn ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// Returns whether this process is the user already, by all its ids of users and groups.
    pub fn is_current(&self) -> bool {
        let (uids, gids) = current();
        uids == [self.uid; 3] && gids == [self.gid; 3]
    }

    /// Makes all threads of this process the user, without a capability, and checks that none can
    /// go back. Nothing that it executes gains a privilege either, and no other process of the user
    /// may trace it or read its memory. Must be called while this process has one thread.
    ///
    /// # Errors
    /// EPERM without CAP_SETUID and CAP_SETGID: setgroups(2), setresuid(2). A sentence if a
    /// privilege is left.
    pub fn become_for_good(&self) -> io::Result<()> {
        if !self.is_current() || may_change() {
            // Groups first: who is another user may not change them.
            // SAFETY: the kernel reads as many ids as there are; the other calls take numbers.
            unsafe {
                check(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
                check(libc::setresgid(self.gid, self.gid, self.gid))?;
                check(libc::setresuid(self.uid, self.uid, self.uid))?;
            }
        }
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets)?;
        lock_down()?;
        self.check()
    }

    /// Checks that this process is the user and nothing more.
    fn check(&self) -> io::Result<()> {
        let sets = rustix::thread::capabilities(None)?;
        // SAFETY: they take numbers, and are meant to fail.
        let has_gone_back = unsafe { libc::setresuid(0, 0, 0) == 0 || libc::setuid(0) == 0 };
        let is_left = has_gone_back || !self.is_current() || !sets.permitted.is_empty();
        if is_left || !sets.effective.is_empty() {
            return Err(io::Error::other("a privilege is left that cannot be given up"));
        }
        Ok(())
    }

    /// Gives the user the file of a Unix socket that root has bound; another file at this path,
    /// or one with other names, stays as it is.
    ///
    /// # Errors
    /// Those of open(2) and fchownat(2); EPERM: it is no such file.
    pub fn own_socket_file(&self, path: &Path) -> io::Result<()> {
        // The very file that was looked at, whatever is put in its place.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let status = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::Socket || status.st_nlink != 1 {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        Ok(rustix::fs::chownat(&file, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
    }
}

/// Lets nothing that this thread executes gain a privilege, and no process without privileges trace
/// this one or read its memory: prctl(2). Threads that are started later inherit the first.
///
/// # Errors
/// Those of prctl(2): none.
pub fn lock_down() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Returns whether this process may become another user: CAP_SETUID and CAP_SETGID.
pub fn may_change() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Returns whether this process has any capability.
pub fn has_privileges() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| !sets.permitted.is_empty())
}

/// Returns the real, effective and saved ids of the user and the group.
fn current() -> ([u32; 3], [u32; 3]) {
    let (mut uids, mut gids) = ([NO_ID; 3], [NO_ID; 3]);
    let ([ruid, euid, suid], [rgid, egid, sgid]) = (&mut uids, &mut gids);
    // SAFETY: each call writes three numbers, which outlive it; neither can fail.
    unsafe {
        libc::getresuid(ruid, euid, suid);
        libc::getresgid(rgid, egid, sgid);
    }
    (uids, gids)
}

fn absent(what: &str, name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no {what} {name}"))
}

/// An entry of the system's users.
struct Entry {
    name: CString,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

/// Looks up an entry of the system's users. `look_up`: getpwnam_r(3) or getpwuid_r(3), with where
/// to put the entry, its strings, how many bytes these may have, and whether it was found.
fn passwd(
    look_up: impl FnOnce(
        *mut libc::passwd,
        *mut libc::c_char,
        usize,
        *mut *mut libc::passwd,
    ) -> libc::c_int,
) -> io::Result<Option<Entry>> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let (mut room, mut found) = (vec![0; ENTRY_BYTES], std::ptr::null_mut());
    let errno = look_up(entry.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut found);
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    // SAFETY: it is null, or points to the entry, which has been filled in then, and whose name is
    // a string in the room.
    Ok(unsafe { found.as_ref() }.map(|entry| Entry {
        // SAFETY: as above.
        name: unsafe { std::ffi::CStr::from_ptr(entry.pw_name) }.to_owned(),
        uid: entry.pw_uid,
        gid: entry.pw_gid,
    }))
}

fn by_name(name: &str) -> io::Result<Option<Entry>> {
    let name = CString::new(name)?;
    // SAFETY: the entry and its strings have room for as much as is said, and outlive the call.
    passwd(|entry, room, bytes, found| unsafe {
        libc::getpwnam_r(name.as_ptr(), entry, room, bytes, found)
    })
}

fn by_number(uid: libc::uid_t) -> io::Result<Option<Entry>> {
    // SAFETY: as by a name.
    passwd(|entry, room, bytes, found| unsafe { libc::getpwuid_r(uid, entry, room, bytes, found) })
}

/// Returns the id of a group; `None` if there is no entry.
fn group_id(name: &str) -> io::Result<Option<libc::gid_t>> {
    let name = CString::new(name)?;
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let (mut room, mut found) = (vec![0; ENTRY_BYTES], std::ptr::null_mut());
    let (at, bytes) = (room.as_mut_ptr(), room.len());
    // SAFETY: as of a user's.
    let errno =
        unsafe { libc::getgrnam_r(name.as_ptr(), entry.as_mut_ptr(), at, bytes, &raw mut found) };
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    // SAFETY: as of a user's.
    Ok(unsafe { found.as_ref() }.map(|entry| entry.gr_gid))
}

/// Returns the groups of a user, of which `gid` is one.
fn groups_of(name: &CString, gid: libc::gid_t) -> io::Result<Vec<libc::gid_t>> {
    let (mut groups, mut count) = (vec![0; GROUPS_MAX], GROUPS_MAX as libc::c_int);
    // SAFETY: there is room for as many ids as is said.
    let all =
        unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    if all < 0 {
        let name = name.to_string_lossy();
        return Err(io::Error::other(format!("user {name} is in more than {GROUPS_MAX} groups")));
    }
    groups.truncate(usize::try_from(count).unwrap_or(0));
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number_and_root_is_none() {
        let Some(Entry { uid, gid, .. }) = by_name("nobody").unwrap() else {
            return eprintln!("SKIPPED: there is no user nobody here");
        };
        let user = User::find("nobody", None).unwrap();
        assert_eq!(user.ids(), (uid, gid));
        assert!(user.groups.contains(&gid));
        assert_eq!(User::find(&uid.to_string(), None).unwrap(), user);
        let grouped = User::find("nobody", Some("root")).unwrap();
        assert_eq!((grouped.ids(), grouped.groups), ((uid, 0), vec![0]));
        let nameless = User::find("4000000000", Some("4000000001")).unwrap();
        assert_eq!(nameless.ids(), (4_000_000_000, 4_000_000_001));
    }

    #[test]
    fn what_would_change_nothing_or_be_root_is_refused() {
        let minus_one = NO_ID.to_string();
        for (name, group) in [
            ("root", None),
            ("0", None),
            ("0", Some("1")),
            ("nobody-here", None),
            ("4000000000", None),
            (&*minus_one, Some("1")),
            ("1", Some(&*minus_one)),
            ("1", Some("no-such-group")),
        ] {
            assert!(User::find(name, group).is_err(), "{name} {group:?}");
        }
    }

    #[test]
    fn a_file_that_is_no_socket_is_not_given_away() {
        let path = std::env::temp_dir().join(format!("weir-user-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let user = User { uid: 1, gid: 1, groups: vec![1] };
        let error = user.own_socket_file(&path).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        std::fs::remove_file(path).unwrap();
    }
}
