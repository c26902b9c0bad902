//! A terminal in which the program runs, and the text that it shows.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Everything written to a terminal, including control sequences.
pub struct Terminal(Arc<Mutex<Vec<u8>>>);

impl Terminal {
    /// Opens a terminal of this size. Returns the terminal and the program's end.
    pub fn open(lines: u16, columns: u16) -> (Self, OwnedFd) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let size = Winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&ours, size).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&shown);
        std::thread::spawn(move || {
            let (mut ours, mut bytes) = (File::from(ours), [0; 4096]);
            // Reading fails when all copies of the other end are closed.
            while let Ok(count @ 1..) = ours.read(&mut bytes) {
                all.lock().unwrap().extend(&bytes[..count]);
            }
        });
        (Self(shown), theirs)
    }

    /// Returns everything written so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}
