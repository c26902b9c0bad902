//! Converts values of other benchmarks' options to tonnage's spelling. Each kind returns `None` for a value that it
//! does not understand.

use tonnage_plan::sweep::Sweep;

use super::tables::VALUES;

/// Largest accepted number.
const NUMBER_MAX: u64 = 1 << 40;

/// Replaces `{}` or `{kind}` in a template word by the converted value.
pub fn fill(word: &str, value: &str, here: &str) -> Option<String> {
    let Some((before, rest)) = word.split_once('{') else {
        return Some(word.to_owned());
    };
    let (kind, after) = rest.split_once('}')?;
    let value = convert(kind, value, here)?;
    Some(format!("{before}{value}{after}"))
}

fn convert(kind: &str, value: &str, here: &str) -> Option<String> {
    let known = |choices: &[(&str, &str)]| {
        let wanted = value.to_lowercase();
        let found = choices.iter().find(|(typed, _)| *typed == wanted);
        found.map(|(_, here)| (*here).to_owned())
    };
    match kind {
        "" => plain(value),
        "int" => number(value).filter(|n| *n > 0).map(|n| n.to_string()),
        "int0" => number(value).map(|n| n.to_string()),
        "size" => size(value),
        "sweep" => sweep(value),
        "fabtests" => fabtests_sizes(value),
        "time" => time(value),
        "rate" => bit_rate(value),
        "name" => plain(value).filter(|text| text.chars().any(char::is_alphabetic)),
        "cpu" => plain(value.split(',').next()?),
        "retry" => match number(value)? {
            7 => Some("forever".to_owned()),
            n => Some(n.to_string()),
        },
        "peers" => hosts(value, here),
        "engine" | "op" | "format" => {
            let option = format!("--{kind}");
            translated(&option, value).or_else(|| plain(value))
        }
        "dtype" => dtype(value),
        "reduce" => ["sum", "prod", "min", "max", "avg"]
            .contains(&value)
            .then(|| value.to_owned()),
        "ioengine" => known(&[
            ("sync", "posix"),
            ("psync", "posix"),
            ("pvsync", "posix"),
            ("pvsync2", "posix"),
            ("vsync", "posix"),
            ("posix", "posix"),
            ("io_uring", "uring"),
            ("libaio", "uring"),
            ("uring", "uring"),
        ]),
        _ => None,
    }
}

/// Returns the value if it can be part of a line: it must not look like an option, and must have no control characters.
fn plain(value: &str) -> Option<String> {
    let is_plain =
        !value.is_empty() && !value.starts_with('-') && !value.chars().any(char::is_control);
    is_plain.then(|| value.to_owned())
}

/// Parses a number of at most [`NUMBER_MAX`].
pub fn number(value: &str) -> Option<u64> {
    let number = value.strip_prefix('+').unwrap_or(value).parse().ok()?;
    (number <= NUMBER_MAX).then_some(number)
}

/// Returns a single size if tonnage can parse it.
pub fn size(value: &str) -> Option<String> {
    let text = value.trim();
    // iperf3 and fio also write K, KB and KiB, and tonnage reads these as 1024.
    let single = |text: &str| {
        (text.len() < 32 && !text.contains([',', '.', '*', '+'])).then(|| text.to_owned())
    };
    let text = single(text)?;
    text.parse::<Sweep>().is_ok().then_some(text)
}

/// Converts sizes or numbers to a sweep. Other benchmarks write ranges as `8-1M`, `8:1M` and `8:1M:4`.
pub fn sweep(value: &str) -> Option<String> {
    let text: String = value.chars().filter(|c| !c.is_whitespace()).collect();
    if text.is_empty() || text.len() > 256 {
        return None;
    }
    let read = |text: String| text.parse::<Sweep>().is_ok().then_some(text);
    if let Some(text) = read(text.clone()) {
        return Some(text);
    }
    let parts: Vec<&str> = text.split([':', '-']).collect();
    match parts[..] {
        [first, last] => read(range(first, last, "")),
        [first, last, factor] => read(range(first, last, &format!("*{factor}"))),
        _ => None,
    }
}

/// Returns a range, or a single value if both ends are the same.
pub fn range(first: &str, last: &str, step: &str) -> String {
    if first == last {
        first.to_owned()
    } else {
        format!("{first}..{last}{step}")
    }
}

/// Converts the value of fabtests' `-S`: `all`, `r:START,STEP,END`, `l:A,B` or one size.
fn fabtests_sizes(value: &str) -> Option<String> {
    if value == "all" {
        return Some("1..8M".to_owned());
    }
    if let Some(list) = value.strip_prefix("l:") {
        return sweep(list);
    }
    if let Some(range) = value.strip_prefix("r:") {
        let parts: Vec<&str> = range.split(',').collect();
        let [first, step, last] = parts[..] else {
            return None;
        };
        return sweep(&format!("{first}..{last}+{step}"));
    }
    size(value)
}

/// Converts a time. A bare number means seconds.
fn time(value: &str) -> Option<String> {
    let digits = value
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .count();
    if digits == 0 || value.starts_with('.') || value.len() > 20 {
        return None;
    }
    match value.get(digits..)? {
        "" => Some(format!("{value}s")),
        "s" | "m" | "ms" | "h" | "us" => Some(value.to_owned()),
        "sec" | "seconds" => Some(format!("{}s", value.get(..digits)?)),
        "min" => Some(format!("{}m", value.get(..digits)?)),
        _ => None,
    }
}

/// Converts a rate in bits per second, such as `10G` or `100M`.
pub fn bit_rate(value: &str) -> Option<String> {
    let lower = value.to_lowercase();
    let text = lower
        .trim_end_matches("bit/s")
        .trim_end_matches("b/s")
        .trim_end_matches("bps");
    let digits: String = text
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    digits.parse::<f64>().ok().filter(|rate| *rate > 0.0)?;
    match text.get(digits.len()..)? {
        "g" => Some(format!("{digits}Gb/s")),
        "m" => Some(format!("{digits}Mb/s")),
        _ => None,
    }
}

/// Returns a list of hosts. A single host is preceded by this host, because a transfer needs two.
pub fn hosts(value: &str, here: &str) -> Option<String> {
    let is_name = |name: &str| {
        let is_sign = |c: char| c.is_ascii_alphanumeric() || ".-_[]:".contains(c);
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_sign)
    };
    if !value.split(',').all(is_name) || value.len() > 4096 {
        return None;
    }
    match value.contains([',', '[']) {
        true => Some(value.to_owned()),
        false if value == here => None,
        false => Some(format!("{here},{value}")),
    }
}

/// Converts an element type, as nccl-tests, MPI and C name it.
pub fn dtype(value: &str) -> Option<String> {
    let name = match value.to_lowercase().as_str() {
        "float" | "float32" | "fp32" | "mpi_float" => "float32",
        "double" | "float64" | "fp64" | "mpi_double" => "float64",
        "half" | "float16" | "fp16" => "float16",
        "bfloat16" | "bf16" => "bfloat16",
        "int" | "int32" | "mpi_int" => "int32",
        "int8" | "char" | "mpi_char" => "int8",
        "uint8" => "uint8",
        "int64" => "int64",
        _ => return None,
    };
    Some(name.to_owned())
}

/// Returns tonnage's spelling of a value that another benchmark uses for this option.
pub fn translated(option: &str, value: &str) -> Option<String> {
    let wanted = value.to_lowercase();
    let found = VALUES
        .iter()
        .find(|(owner, typed, _)| *owner == option && *typed == wanted);
    found.map(|(_, _, here)| (*here).to_owned())
}
