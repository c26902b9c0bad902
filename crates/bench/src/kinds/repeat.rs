//! Builds the command line that measures an experiment again. It includes the run's options that are not part of a
//! point.

use crate::settings::{Numa, Settings};
use tonnage_machine::CpuChoice;
use tonnage_plan::options::command_line::quoted;
use tonnage_units::Result;

/// Returns a shell command for an experiment with one engine. `arguments` are those of the experiment. If the run used
/// a launcher, the command goes in place of the run's command, after the launcher's own arguments.
pub fn command_line(
    arguments: Vec<String>,
    (engine, ranks): (&str, u32),
    settings: &Settings,
) -> Result<String> {
    let mut words = vec!["tonnage".to_owned()];
    words.extend(arguments);
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("ranks", ranks.to_string());
    match &settings.cpus {
        CpuChoice::Auto => {}
        CpuChoice::None => option("cpus", "none".to_owned()),
        // The order of the list is kept, because CPUs are assigned in this order.
        CpuChoice::List(cpus) => {
            let each: Vec<String> = cpus.iter().map(u32::to_string).collect();
            option("cpus", each.join(","));
        }
    }
    match settings.numa {
        Numa::Auto => {}
        Numa::None => option("numa", "none".to_owned()),
        Numa::Node(node) => option("numa", node.to_string()),
    }
    // Includes only devices and libraries of this engine. The run may have used others for other engines.
    let entry = settings.lists.engine(engine)?;
    let devices = &settings.devices;
    if entry.has_devices && !devices.all_ranks.is_empty() {
        option("devices", devices.all_ranks.join(","));
    }
    for (rank, names) in devices.of_ranks.iter().filter(|_| entry.has_devices) {
        option("devices-of", format!("{rank}={}", names.join(",")));
    }
    let has = |name: &str| entry.libraries.iter().any(|library| library.name == name);
    for (name, path) in settings.libraries.iter().filter(|(name, _)| has(name)) {
        option("library", format!("{name}={}", path.display()));
    }
    Ok(quoted(&words))
}
