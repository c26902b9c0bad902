//! Parses values as IOR does. Each error gives the fault and the accepted form; the caller adds the option's name.

/// Interface that moves the bytes (`-a`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// pread and pwrite.
    Posix,
    /// MPI-IO.
    Mpiio,
    /// io_uring, which IOR does not have.
    Uring,
}

impl Api {
    /// The name as IOR prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Posix => "POSIX",
            Self::Mpiio => "MPIIO",
            Self::Uring => "URING",
        }
    }
}

/// Format of the result block (`-O summaryFormat=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryFormat {
    /// IOR's table.
    Text,
    /// One JSON object.
    Json,
    /// One line for each pass.
    Csv,
}

/// Number of Lustre targets that a file is striped over (`--posix.lustre.stripecount`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stripes {
    /// All, which Lustre writes as -1.
    All,
    /// The given number.
    Targets(u64),
}

/// Parses `8`, `4k`, `4K`, `4kb` or `4KiB`. As in IOR, every unit is a power of two.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let why = match (number.parse::<u64>(), shift_of(unit)) {
        (Ok(number), Some(shift)) => match number.checked_mul(1 << shift) {
            Some(value) => return Ok(value),
            None => "is too large",
        },
        (Err(_), Some(_)) if digits > 0 => "is too large",
        _ => "is not a number",
    };
    Err(format!(
        "{why}: use a whole number, with k, m, g or t for powers of two, e.g. 8, 4k or 2m"
    ))
}

/// Parses a whole number that may be negative, as IOR allows for seeds.
pub fn parse_signed(text: &str) -> Result<i64, String> {
    let below = |_| "is too small: use -2147483648 or more".to_owned();
    match text.strip_prefix('-') {
        None => i64::try_from(parse_size(text)?).map_err(|_| "is too large".to_owned()),
        Some(digits) => {
            let number = i64::try_from(parse_size(digits)?).map_err(below)?;
            i32::try_from(-number).map(i64::from).map_err(below)
        }
    }
}

/// Parses a time. As in IOR, a negative time means no limit or pause, like 0.
pub fn parse_time(text: &str) -> Result<u64, String> {
    match text.strip_prefix('-') {
        None => parse_size(text),
        Some(digits) => parse_size(digits).map(|_| 0),
    }
}

fn shift_of(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_lowercase();
    let letter = unit
        .strip_suffix("ib")
        .or_else(|| unit.strip_suffix('b'))
        .unwrap_or(&unit);
    match letter {
        "" if !unit.starts_with('i') => Some(0),
        "k" => Some(10),
        "m" => Some(20),
        "g" => Some(30),
        "t" => Some(40),
        "p" => Some(50),
        _ => None,
    }
}

/// Parses the value of a flag, as in `-F=1` or `-O filePerProc=1`.
pub fn parse_flag(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.len() < 5 && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(times) if digits => Ok(times),
        _ => Err("is neither on nor off: use 1 or 0".to_owned()),
    }
}

/// Parses the name of an API.
pub fn parse_api(name: &str) -> Result<Api, String> {
    let instead = match name.to_ascii_uppercase().as_str() {
        "POSIX" => return Ok(Api::Posix),
        "MPIIO" => return Ok(Api::Mpiio),
        "URING" => return Ok(Api::Uring),
        "AIO" => "io_uring has replaced it: use -a URING",
        "MMAP" => "tonnage does not measure mapped files: use -a POSIX",
        "DUMMY" => "to see the plan without running it, use --dryRun",
        "HDF5" | "NCMPI" => "these libraries use MPI-IO: use -a MPIIO",
        _ => "use POSIX, MPIIO or URING",
    };
    Err(format!("is not supported by tonnage: {instead}"))
}

/// Parses a number of stripe targets.
pub fn parse_stripes(count: &str) -> Result<Stripes, String> {
    match count {
        "-1" => Ok(Stripes::All),
        count => parse_size(count).map(Stripes::Targets),
    }
}

/// Parses a kind of data.
pub fn parse_data(name: &str) -> Result<String, String> {
    match name {
        "o" | "i" | "t" | "r" | "offset" | "incompressible" | "timestamp" | "random" => {
            Ok(name.to_owned())
        }
        _ => Err(
            "is not a kind of data: use offset, incompressible, timestamp or random (all are the same here: the data \
             contains its offset and its seed, and does not compress)"
                .to_owned(),
        ),
    }
}

/// Parses a format of the result block.
pub fn parse_summary_format(name: &str) -> Result<SummaryFormat, String> {
    match name.to_ascii_lowercase().as_str() {
        "default" => Ok(SummaryFormat::Text),
        "json" => Ok(SummaryFormat::Json),
        "csv" => Ok(SummaryFormat::Csv),
        _ => Err("is not a format: use default, JSON or CSV".to_owned()),
    }
}
