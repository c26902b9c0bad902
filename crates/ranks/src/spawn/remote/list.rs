//! Parses lists of hosts and their numbers of ranks, from `--hosts` and host files.

use tonnage_units::{Error, Result};

/// Limit on the number of ranks. A larger number is assumed to be a typing error.
const SLOTS_MAX: u32 = 1 << 16;

/// A host of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSlots {
    /// The destination as ssh accepts it: `host` or `user@host`.
    pub name: String,
    /// The host's number of ranks, if the list gives one.
    pub slots: Option<u32>,
}

impl HostSlots {
    /// Parses `host`, `user@host`, `host:4` or `[fd00::1]:4`.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, slots) = match text.rsplit_once(':') {
            // Several colons mean an IPv6 address. A number of ranks can then follow only if the address is in
            // brackets.
            Some((before, _)) if before.contains(':') && !before.ends_with(']') => (text, None),
            Some((before, after)) => (before, Some(parse_slots(after, text)?)),
            None => (text, None),
        };
        let name = without_brackets(name);
        check_name(&name)?;
        Ok(Self { name, slots })
    }

    /// Returns the host, without the user.
    pub fn host(&self) -> &str {
        without_user(&self.name)
    }
}

/// Returns the host of a destination, without the user.
pub(super) fn without_user(name: &str) -> &str {
    name.rsplit_once('@').map_or(name, |(_, host)| host)
}

/// Removes the brackets around an IPv6 address.
fn without_brackets(name: &str) -> String {
    let (user, host) = match name.rsplit_once('@') {
        Some((user, host)) => (format!("{user}@"), host),
        None => (String::new(), name),
    };
    let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    format!("{user}{}", inner.unwrap_or(host))
}

/// Fails for names that are invalid, or that ssh would take for an option.
fn check_name(name: &str) -> Result<()> {
    let host = without_user(name);
    let is_odd = |sign: char| {
        sign.is_whitespace()
            || sign.is_control()
            || ['\'', '"', '\\', '$', '`', ';', '|', '&', ',', '#', '[', ']'].contains(&sign)
    };
    if host.is_empty()
        || name.starts_with(['-', '@'])
        || host.starts_with('-')
        || name.contains(is_odd)
    {
        return Err(Error::Usage(format!(
            "{name:?} is not a host: write a name or address as for ssh, such as h1, user@h1 or h1:4"
        )));
    }
    Ok(())
}

fn parse_slots(text: &str, whole: &str) -> Result<u32> {
    match text.parse() {
        Ok(slots)
            if (1..=SLOTS_MAX).contains(&slots)
                && text.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            Ok(slots)
        }
        _ => Err(Error::Usage(format!(
            "{whole:?}: {text:?} is not a number of ranks from 1 to {SLOTS_MAX}"
        ))),
    }
}

/// Parses a host file. Each line is `host`, `host:4` or `host slots=4`; `#` starts a comment.
pub fn parse_file(text: &str, path: &str) -> Result<Vec<HostSlots>> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let said = line.split('#').next().unwrap_or_default();
        let mut words = said.split_whitespace();
        let Some(name) = words.next() else { continue };
        let wrong = |why: &str| Error::Usage(format!("{path}, line {number}: {why}"));
        let mut host = HostSlots::parse(name).map_err(|error| wrong(&error.to_string()))?;
        for word in words {
            let count = word.strip_prefix("slots=").ok_or_else(|| {
                wrong(&format!(
                    "{word:?} is not known: write slots=N, or nothing, behind a host"
                ))
            })?;
            if host.slots.is_some() {
                return Err(wrong("the number of ranks is there twice"));
            }
            host.slots = Some(parse_slots(count, word).map_err(|error| wrong(&error.to_string()))?);
        }
        hosts.push(host);
    }
    if hosts.is_empty() {
        return Err(Error::Usage(format!(
            "{path} lists no host: write one in each line"
        )));
    }
    Ok(hosts)
}

/// Hosts, and the number of ranks of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlacement {
    /// The hosts in order, without repetitions.
    pub hosts: Vec<HostSlots>,
    /// Number of ranks of each host.
    pub ranks: Vec<u32>,
    /// Hosts that the list named more than once.
    pub repeated: Vec<String>,
}

impl HostPlacement {
    /// Gives each host `per_host` ranks, or else its number in the list, or else one. A host that is listed several
    /// times gets the sum.
    pub fn new(listed: &[HostSlots], per_host: Option<u32>) -> Result<Self> {
        let mut placement = Self {
            hosts: Vec::new(),
            ranks: Vec::new(),
            repeated: Vec::new(),
        };
        for host in listed {
            if let (Some(slots), Some(asked)) = (host.slots, per_host)
                && asked > slots
            {
                return Err(Error::Usage(format!(
                    "--per-host {asked} are more ranks than the {slots} slots of {}: ask for fewer, or list more slots",
                    host.name
                )));
            }
            let ranks = per_host.or(host.slots).unwrap_or(1);
            let mut known = placement.hosts.iter();
            let known = known.position(|known| known.name == host.name);
            match known {
                Some(place) => {
                    placement.ranks[place] = placement.ranks[place].saturating_add(ranks);
                    if !placement.repeated.contains(&host.name) {
                        placement.repeated.push(host.name.clone());
                    }
                }
                None => {
                    placement.hosts.push(host.clone());
                    placement.ranks.push(ranks);
                }
            }
        }
        let size = placement.size();
        if size > SLOTS_MAX {
            return Err(Error::Usage(format!(
                "the hosts have {size} ranks together: the most is {SLOTS_MAX}"
            )));
        }
        Ok(placement)
    }

    /// Returns the number of all ranks.
    pub fn size(&self) -> u32 {
        let ranks = self.ranks.iter();
        ranks.fold(0, |sum, ranks| sum.saturating_add(*ranks))
    }

    /// Returns the ranks of each host. The ranks of one host are consecutive.
    pub fn blocks(&self) -> Vec<std::ops::Range<u32>> {
        let mut next = 0;
        let blocks = self.ranks.iter().map(|ranks| {
            let first = next;
            next += ranks;
            first..next
        });
        blocks.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(name: &str, slots: Option<u32>) -> HostSlots {
        HostSlots {
            name: name.into(),
            slots,
        }
    }

    #[test]
    fn hosts_are_parsed_in_every_notation() {
        for (text, name, slots) in [
            ("a", "a", None),
            ("b:4", "b", Some(4)),
            ("user@c", "user@c", None),
            ("user@c.d-e:2", "user@c.d-e", Some(2)),
            ("10.0.0.1:8", "10.0.0.1", Some(8)),
            ("fd00::1", "fd00::1", None),
            ("[fd00::1]:3", "fd00::1", Some(3)),
        ] {
            assert_eq!(HostSlots::parse(text).unwrap(), host(name, slots), "{text}");
        }
        assert_eq!(HostSlots::parse("u@c").unwrap().host(), "c");
        for wrong in
            "|-oProxyCommand=x|u@-x|@h|u@|a b|a:0|a:x|a:+1|a;b|a$b|a:99999999|:4".split('|')
        {
            let error = HostSlots::parse(wrong).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn files_of_hosts_have_comments_and_slots() {
        let text = "# all\n\na\nb:4   # four\n\tuser@c slots=2\n";
        let read = parse_file(text, "hosts").unwrap();
        assert_eq!(
            read,
            [host("a", None), host("b", Some(4)), host("user@c", Some(2))]
        );
        for (wrong, part) in [
            ("", "lists no host"),
            ("a\nb slot=2", "line 2"),
            ("a:2 slots=2", "twice"),
            ("a slots=0", "line 1"),
            ("a slots=1 slots=1", "twice"),
            ("-x", "line 1"),
        ] {
            let error = parse_file(wrong, "hosts").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn each_host_has_its_block_of_ranks() {
        let listed = [host("a", None), host("b", Some(4)), host("a", Some(2))];
        let placed = HostPlacement::new(&listed, None).unwrap();
        assert_eq!((placed.size(), &placed.ranks[..]), (7, &[3, 4][..]));
        assert_eq!(placed.blocks(), [0..3, 3..7]);
        assert_eq!(placed.repeated, ["a"]);
        let placed = HostPlacement::new(&listed[..2], Some(2)).unwrap();
        assert_eq!(placed.ranks, [2, 2]);
        let error = HostPlacement::new(&listed, Some(5))
            .unwrap_err()
            .to_string();
        assert!(error.contains("4 slots of b"), "{error}");
        assert!(HostPlacement::new(&vec![host("a", Some(SLOTS_MAX)); 2], None).is_err());
    }

    proptest! {
        #[test]
        fn written_host_files_are_parsed_back(
            names in prop::collection::vec(("([a-z]{1,4}@)?[a-z0-9][a-z0-9.-]{0,8}", prop::option::of(1u32..100), any::<bool>()), 1..8),
        ) {
            let line = |(name, slots, colon): &(String, Option<u32>, bool)| match (slots, colon) {
                (Some(slots), true) => format!("{name}:{slots} # x\n"),
                (Some(slots), false) => format!("  {name} slots={slots}\n"),
                (None, _) => format!("{name}\n\n"),
            };
            let text: String = names.iter().map(line).collect();
            let wanted: Vec<_> = names.iter().map(|(name, slots, _)| host(name, *slots)).collect();
            prop_assert_eq!(parse_file(&text, "hosts").unwrap(), wanted);
        }

        #[test]
        fn nothing_makes_it_panic_or_an_option(text in "\\PC{0,40}") {
            if let Ok(read) = HostSlots::parse(&text) {
                prop_assert!(!read.name.starts_with('-') && !read.host().starts_with('-'));
                prop_assert!(!read.name.contains(char::is_whitespace) && !read.host().is_empty());
            }
            let _ = parse_file(&text, "hosts");
        }
    }
}
