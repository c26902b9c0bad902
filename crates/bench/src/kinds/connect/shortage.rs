//! Resources that ran out, told from an engine's refusal. Everything else that can go wrong is a failure, and says
//! nothing about how much would fit.

use std::io;

use rustix::io::Errno;

use tonnage_units::Error;

/// A resource that was refused for want of more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// The system's number for it, such as ENOMEM.
    Code(Errno),
    /// The engine's own refusal, without a number.
    Said,
}

/// Numbers of resources. ENFILE stands before EMFILE, whose words it begins with.
const CODES: [Errno; 5] = [
    Errno::NOMEM,
    Errno::NFILE,
    Errno::MFILE,
    Errno::AGAIN,
    Errno::NOSPC,
];

impl Shortage {
    /// Returns the shortage that an error tells of, if it does. An engine's library hands its number over as words,
    /// which are those of the system.
    pub fn of(error: &Error) -> Option<Self> {
        let code = match error {
            Error::Io { source, .. } => {
                let number = source.raw_os_error();
                CODES
                    .into_iter()
                    .find(|code| number == Some(code.raw_os_error()))
            }
            Error::Failed(text) | Error::Unavailable { why: text, .. } => {
                CODES.into_iter().find(|&code| text.contains(&words(code)))
            }
            Error::Usage(_) | Error::Rank { .. } | Error::Interrupted { .. } => None,
        };
        match error {
            Error::Unavailable { .. } => Some(code.map_or(Self::Said, Self::Code)),
            _ => code.map(Self::Code),
        }
    }
}

/// The system's words for a number.
fn words(code: Errno) -> String {
    let mut text = io::Error::from_raw_os_error(code.raw_os_error()).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_wherever_it_is_said() {
        let code = |code| Some(Shortage::Code(code));
        for errno in CODES {
            let system = io::Error::from(errno);
            let of_library = format!(
                "cannot open fabric:tcp on lo: fi_endpoint: {}",
                words(errno)
            );
            assert_eq!(Shortage::of(&Error::Failed(of_library)), code(errno));
            let nested = Error::Failed(format!("fabric:tcp: {system}"));
            assert_eq!(Shortage::of(&nested), code(errno));
            assert_eq!(Shortage::of(&Error::io("cannot map", system)), code(errno));
        }
        let engine = |why: String| Error::Unavailable {
            what: "shm".into(),
            why,
            how: "Start both".into(),
        };
        let opened = engine(format!("cannot open it: {}", words(Errno::MFILE)));
        assert_eq!(Shortage::of(&opened), code(Errno::MFILE));
        assert_eq!(Shortage::of(&engine("no".into())), Some(Shortage::Said));
    }

    #[test]
    fn other_failures_are_none() {
        let others = [
            Error::Failed("a worker thread of this rank died".into()),
            Error::Failed("fi_endpoint: Invalid argument (-22)".into()),
            Error::io("cannot pin a thread to CPU 9", Errno::INVAL),
            Error::io("cannot open it", Errno::ACCESS),
            Error::Usage("wrong".into()),
            Error::Interrupted {
                signal: 2,
                rank: None,
            },
        ];
        for other in others {
            assert_eq!(Shortage::of(&other), None, "{other}");
        }
    }
}
