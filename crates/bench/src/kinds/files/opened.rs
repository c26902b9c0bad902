//! Engines' own accounts on all ranks, for the record.

use serde::{Deserialize, Serialize};

use super::experiment::{Experiment, State};
use super::memory;
use crate::deadlines::DEADLINES;
use crate::json::Json;
use crate::kinds::kind::together;
use tonnage_engine::EngineReport;
use tonnage_engine::calls::FileDomain;
use tonnage_engine::memory::MemoryReport;
use tonnage_record::Effective;
use tonnage_record::environment::Memories;
use tonnage_units::Result;

/// A rank's message to the others once its engine is open.
#[derive(Serialize, Deserialize)]
struct OpenMessage {
    engine: EngineReport,
    memory: MemoryReport,
    cpus: Vec<Option<u32>>,
}

impl Experiment<'_> {
    /// Engines' own accounts for rank 0, ranks with the same answer together.
    pub(super) fn effective(
        &mut self,
        domain: &dyn FileDomain,
        state: &State,
    ) -> Result<Vec<Effective>> {
        let mut engine = domain.report();
        for worker in &state.team {
            engine.facts.extend(worker.calls.chosen());
        }
        let allocated = state.team.iter().map(|worker| &worker.allocated);
        let opened = OpenMessage {
            engine,
            memory: memory::report(allocated),
            cpus: state.team.iter().map(|worker| worker.cpu).collect(),
        };
        let what = "what the engines are";
        let all = self.rank.collect(what, &Json(opened), DEADLINES.step)?;
        let all = all.iter().map(|Json(opened)| Effective {
            ranks: String::new(),
            engine: opened.engine.clone(),
            memory: Memories::Alike(Box::new(opened.memory.clone())),
            cpus: opened.cpus.clone(),
            sockets: Vec::new(),
            yielding: false,
        });
        Ok(together(all))
    }
}
