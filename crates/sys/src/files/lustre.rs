//! Striping of a new file of Lustre over its servers, without Lustre's library or its `lfs`.
//!
//! Numbers and layout are those of Lustre's public header, lustre/include/uapi/linux/lustre/lustre_user.h of the
//! releases 2.12 to 2.16 (`O_LOV_DELAY_CREATE`, `LL_IOC_LOV_SETSTRIPE`, `struct lov_user_md_v1`, the attribute
//! "lustre.lov"). They have been part of Lustre's programming interface since 1.8. No Lustre was available during
//! development: tests cover the layout, and the answers of other file systems.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::fgetxattr;

use super::file_system;
use super::open::{OpenFlags, open};
use crate::library::outcome;

/// Additional flags of open(2) for a new file that gets its striping afterwards. Lustre 1.8 used a separate bit, which
/// later kernels mask out. Later releases use two flags that have no other effect on a regular file.
pub const DELAY_CREATE: i32 = 0o100_000_000 | libc::O_NOCTTY | libc::O_ASYNC;

/// `LL_IOC_LOV_SETSTRIPE`.
const SET_STRIPE: libc::Ioctl = libc::_IOW::<libc::c_long>(b'f' as u32, 154);

/// `LOV_USER_MAGIC_V1`.
const MAGIC_V1: u32 = 0x0bd1_0bd0;
/// `LOV_USER_MAGIC_V3`: like V1, followed by the name of a pool.
const MAGIC_V3: u32 = 0x0bd3_0bd0;
/// `LOV_USER_MAGIC_SPECIFIC`: like V3, with the requested servers.
const MAGIC_SPECIFIC: u32 = 0x0bd5_0bd0;
/// `LOV_USER_MAGIC_COMP_V1`: several layouts, each for a part of the file.
const MAGIC_COMPOSITE: u32 = 0x0bd6_0bd0;

/// The kernel returns attributes of at most 64 KiB, so layouts are never longer.
const LAYOUT_BYTES_MAX: usize = 64 << 10;

/// Stripes are multiples of this (`LOV_MIN_STRIPE_SIZE`).
pub const STRIPE_UNIT_BYTES: u32 = 64 << 10;

/// Striping of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Striping {
    /// Number of object storage targets.
    pub count: StripeCount,
    /// Bytes per stripe; 0 selects the file system's default.
    pub size_bytes: u32,
}

/// Number of object storage targets that a file is spread over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StripeCount {
    /// The default of the folder or the file system.
    Default,
    /// All object storage targets.
    All,
    /// This number of targets, at least 1.
    Number(u16),
}

/// `struct lov_user_md_v1` without the list of objects that follows it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct LovUserMd {
    magic: u32,
    pattern: u32,
    object_id: u64,
    object_sequence: u64,
    stripe_size: u32,
    stripe_count: u16,
    /// In a layout to set: target of the first stripe. In a layout that was read: the layout's generation.
    stripe_offset: u16,
}

/// Argument of the ioctl: a layout, and room in which Lustre may store the new file's objects.
#[repr(C)]
struct Room {
    layout: LovUserMd,
    objects: [u8; LAYOUT_BYTES_MAX],
}

impl Striping {
    /// # Errors
    /// If Lustre would reject the striping; the message names the accepted values.
    fn layout(self) -> io::Result<LovUserMd> {
        let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        if !self.size_bytes.is_multiple_of(STRIPE_UNIT_BYTES) {
            return Err(refused(format!(
                "stripe size {} bytes: Lustre accepts multiples of {STRIPE_UNIT_BYTES}",
                self.size_bytes
            )));
        }
        let stripe_count = match self.count {
            StripeCount::Default => 0,
            StripeCount::All => u16::MAX,
            StripeCount::Number(number @ 1..=2000) => number,
            StripeCount::Number(number) => {
                return Err(refused(format!(
                    "{number} stripes: Lustre accepts 1 to 2000, or all"
                )));
            }
        };
        Ok(LovUserMd {
            magic: MAGIC_V1,
            stripe_size: self.size_bytes,
            stripe_count,
            // Any server may be the first.
            stripe_offset: u16::MAX,
            ..LovUserMd::default()
        })
    }
}

/// Makes and opens a new file with this striping. A file that exists is rejected, because its striping is permanent.
///
/// # Errors
/// `Unsupported` if the folder is on another file system; `AlreadyExists`; `InvalidInput` for a striping that Lustre
/// does not accept; or the system's error. No file is left after an error.
pub fn create(path: &Path, flags: &OpenFlags, striping: Striping) -> io::Result<File> {
    let layout = striping.layout()?;
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let found = file_system::of_path(folder)?;
    if found.name != "lustre" {
        let folder = folder.display();
        return Err(unsupported(format!(
            "{folder} is on {}: only files on Lustre can be striped",
            found.name
        )));
    }
    let flags = OpenFlags {
        create: true,
        custom: flags.custom | DELAY_CREATE,
        ..*flags
    };
    let file = open(path, &flags)?;
    if let Err(error) = set(file.as_fd(), layout) {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

fn unsupported(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

fn set(file: BorrowedFd<'_>, layout: LovUserMd) -> io::Result<()> {
    let mut room = Box::new(Room {
        layout,
        objects: [0; LAYOUT_BYTES_MAX],
    });
    // SAFETY: Lustre reads a layout and may write it back with the objects of the file. `room` is larger than the
    // largest layout. Other file systems reject the unknown request number without touching the memory.
    outcome(unsafe { libc::ioctl(file.as_raw_fd(), SET_STRIPE, &raw mut *room) })
}

/// Returns the actual striping of a file of Lustre.
///
/// # Errors
/// `Unsupported` for a file that is not on Lustre, or with different stripings in its parts; otherwise the system's
/// error.
pub fn striping(file: impl AsFd) -> io::Result<Striping> {
    let found = file_system::of_file(&file)?;
    if found.name != "lustre" {
        let why = format!("it is on {}, which has no stripes", found.name);
        return Err(unsupported(why));
    }
    let mut bytes = vec![0; LAYOUT_BYTES_MAX];
    let length = fgetxattr(&file, "lustre.lov", bytes.as_mut_slice())?;
    parsed(bytes.get(..length).unwrap_or_default())
}

/// Parses the attribute "lustre.lov", which has this machine's byte order.
fn parsed(bytes: &[u8]) -> io::Result<Striping> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?;
        word.try_into().ok().map(u32::from_ne_bytes)
    };
    let half = |at: usize| {
        let half = bytes.get(at..at + 2)?;
        half.try_into().ok().map(u16::from_ne_bytes)
    };
    match (word(0), word(24), half(28)) {
        (Some(MAGIC_V1 | MAGIC_V3 | MAGIC_SPECIFIC), Some(size_bytes), Some(count)) => {
            Ok(Striping {
                count: match count {
                    0 => StripeCount::Default,
                    u16::MAX => StripeCount::All,
                    count => StripeCount::Number(count),
                },
                size_bytes,
            })
        }
        (Some(MAGIC_COMPOSITE), ..) => {
            let why = "its parts have different stripings (a composite layout)";
            Err(unsupported(why.to_owned()))
        }
        (magic, ..) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "Lustre returned {} bytes in an unknown layout (it begins with {:#x})",
                bytes.len(),
                magic.unwrap_or(0)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;
    use std::mem::offset_of;

    const STRIPING: Striping = Striping {
        count: StripeCount::Number(72),
        size_bytes: 1 << 20,
    };

    #[test]
    fn layout_and_numbers_are_those_of_the_header() {
        assert_eq!(size_of::<LovUserMd>(), 32);
        assert_eq!(offset_of!(LovUserMd, object_id), 8);
        assert_eq!(offset_of!(LovUserMd, stripe_size), 24);
        assert_eq!(offset_of!(LovUserMd, stripe_count), 28);
        assert_eq!(offset_of!(LovUserMd, stripe_offset), 30);
        assert_eq!(offset_of!(Room, objects), 32);
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(SET_STRIPE, 0x4008_669a);
        }
    }

    #[test]
    fn the_requested_striping_is_passed_to_lustre() {
        let layout = STRIPING.layout().unwrap();
        assert_eq!((layout.magic, layout.pattern), (0x0bd1_0bd0, 0));
        assert_eq!(
            (
                layout.stripe_count,
                layout.stripe_size,
                layout.stripe_offset
            ),
            (72, 1 << 20, 0xffff)
        );
        let all = Striping {
            count: StripeCount::All,
            size_bytes: 0,
        };
        assert_eq!(all.layout().unwrap().stripe_count, 0xffff);
        let refused = |count, size_bytes| {
            let error = Striping { count, size_bytes }.layout().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            error.to_string()
        };
        assert!(refused(StripeCount::All, 4096).contains("multiples of 65536"));
        assert!(refused(StripeCount::Number(0), 0).contains("1 to 2000"));
        assert!(refused(StripeCount::Number(2001), 0).contains("1 to 2000"));
    }

    #[test]
    fn other_file_systems_are_refused_and_no_file_is_left() {
        let scratch = Scratch::on_disk();
        if file_system::of_path(scratch.path().parent().unwrap())
            .unwrap()
            .name
            == "lustre"
        {
            return println!("skip: the build folder is on Lustre");
        }
        let flags = OpenFlags {
            write: true,
            ..OpenFlags::default()
        };
        let refused = create(scratch.path(), &flags, STRIPING).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        assert!(refused.to_string().contains("only files on Lustre"));
        assert!(!scratch.path().exists());
        let file = scratch.holding(b"");
        let answer = set(file.as_fd(), STRIPING.layout().unwrap()).unwrap_err();
        assert_eq!(answer.raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(
            striping(&file).unwrap_err().kind(),
            io::ErrorKind::Unsupported
        );
    }

    /// The attribute as `getfattr -n lustre.lov` prints it: 32 bytes of header and 24 per object.
    fn attribute(magic: u32, count: u16) -> Vec<u8> {
        let mut bytes = vec![0; 32 + 24 * usize::from(count)];
        bytes[0..4].copy_from_slice(&magic.to_ne_bytes());
        bytes[4] = 1;
        bytes[24..28].copy_from_slice(&(1u32 << 20).to_ne_bytes());
        bytes[28..30].copy_from_slice(&count.to_ne_bytes());
        bytes
    }

    #[test]
    fn the_attribute_is_parsed_and_invalid_ones_are_refused() {
        for magic in [MAGIC_V1, MAGIC_V3, MAGIC_SPECIFIC] {
            assert_eq!(parsed(&attribute(magic, 72)).unwrap(), STRIPING);
        }
        let composite = parsed(&attribute(MAGIC_COMPOSITE, 1)).unwrap_err();
        assert_eq!(composite.kind(), io::ErrorKind::Unsupported);
        let whole = attribute(MAGIC_V1, 0);
        for length in 0..30 {
            let cut = parsed(&whole[..length]).unwrap_err();
            assert_eq!(cut.kind(), io::ErrorKind::InvalidData, "{length}");
        }
        assert!(parsed(&attribute(0xd00f, 1)).is_err());
    }
}
