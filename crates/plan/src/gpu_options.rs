//! Checks of engine options that are about GPU memory, in experiments that may use none.

use crate::refuse::usage_error;
use tonnage_engine::memory::MemoryEntry;
use tonnage_engine::{EngineOptions, Entry, Lists};
use tonnage_units::Result;

/// Refuses an engine's options for GPU memory if no memory of a point is on a GPU.
pub(crate) fn check_gpu_options(
    entry: &Entry,
    asked: &EngineOptions,
    memories: &[&str],
    lists: &Lists,
) -> Result<()> {
    let Some(about) = about_gpus(entry, asked) else {
        return Ok(());
    };
    let is_of_gpu = |entry: &MemoryEntry| entry.takes_gpu && !entry.host_addressable;
    // A memory that is not in the list counts as GPU memory here: another check skips or refuses it by name.
    let mut names = memories.iter();
    if names.any(|name| lists.memory(name).map_or(true, is_of_gpu)) {
        return Ok(());
    }
    let mut all = lists.memories.iter();
    let instead = all.find(|entry| is_of_gpu(entry));
    let instead = instead.map(|entry| format!(", or use --memory {}", entry.name));
    usage_error(format!(
        "{about}, and with --memory {} neither end has any: leave it out{}",
        memories.join(" and "),
        instead.unwrap_or_default()
    ))
}

/// Refuses an engine's options for GPU memory in collectives, because the CPU fills and checks their elements.
pub(crate) fn refuse_gpu_options(entry: &Entry, asked: &EngineOptions) -> Result<()> {
    match about_gpus(entry, asked) {
        None => Ok(()),
        Some(about) => usage_error(format!(
            "{about}, and collectives have memory of the host: leave it out"
        )),
    }
}

/// Describes the first requested option that needs GPU memory.
fn about_gpus(entry: &Entry, asked: &EngineOptions) -> Option<String> {
    let mut options = entry.options.iter();
    let option = options.find(|option| option.needs_gpu_memory(asked))?;
    let value = option.value(asked);
    Some(format!(
        "--engine-option {}={value} is about memory of a GPU",
        option.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;
    use crate::fixture::{Holds, LISTS, entry};
    use tonnage_engine::{EngineOption, OptionKind, Verb};

    const OPTIONS: [EngineOption; 1] = [EngineOption {
        name: "keys",
        kind: OptionKind::OfGpuMemory(&["auto", "file"]),
        variants: &[],
        about: "",
    }];

    const GPUS: Entry = Entry {
        options: &OPTIONS,
        ..entry("gpus", &Verb::ALL, true, true)
    };

    static WITH_OPTION: Lists = Lists {
        engines: &[GPUS],
        ..LISTS
    };

    fn checked(value: &str, memories: &[&str]) -> Result<()> {
        let asked = EngineOptions::from([("keys".to_owned(), value.to_owned())]);
        check_gpu_options(&GPUS, &asked, memories, &LISTS)
    }

    #[test]
    fn memory_of_a_gpu_at_one_end_is_enough() {
        for memories in [
            &["cuda"][..],
            &["host", "cuda:1"],
            &["cuda", "host"],
            &["nothing"],
        ] {
            checked("file", memories).unwrap();
        }
        checked("auto", &["host"]).unwrap();
        let said = checked("file", &["host", "huge"]).unwrap_err().to_string();
        assert_eq!(
            said,
            "--engine-option keys=file is about memory of a GPU, and with --memory host and huge neither end has any: \
             leave it out, or use --memory cuda"
        );
    }

    /// Covers each kind that has engine options, and each pair of memories of a transfer.
    #[test]
    fn every_kind_refuses_them_before_a_rank_starts() {
        let refused = |table: &str| {
            let text = format!("name = 'n'\n{table}\nengine-options = {{ keys = 'file' }}");
            let plan = Plan::from_toml(&text, "n.toml").unwrap();
            match plan.points(2, &WITH_OPTION) {
                Ok(planned) => planned.into_iter().find_map(|planned| planned.impossible),
                Err(error) => Some(error.to_string()),
            }
        };
        for table in [
            "[[transfer]]\nengine = 'gpus'\nop = 'write'\nsizes = 8",
            "[[transfer]]\nengine = 'gpus'\nop = 'write'\nsizes = 8\nmemory = ['cuda', 'host']",
            "[[connect]]\nengine = 'gpus'",
            "[[stress]]\nengine = 'gpus'",
            "[[tune]]\nengine = 'gpus'\nop = 'write'\nsizes = 8",
        ] {
            let said = refused(table).unwrap();
            said.holds("with memory host neither end has any");
        }
        // Collectives cannot use another memory, so the message does not suggest one.
        let collective = "[[collective]]\nbackend = 'native:gpus'\nop = 'all-reduce'\nsizes = 8";
        let said = refused(collective).unwrap();
        said.holds("and collectives have memory of the host: leave it out");
        // Stress draws both memories, and operations on GPU memory use the option.
        assert_eq!(
            refused("[[stress]]\nengine = 'gpus'\nmemory = ['host', 'cuda']"),
            None
        );
    }
}
