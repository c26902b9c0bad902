//! The whole program from outside: the real binary, real ranks, real engines, real files.
//!
//! | module | what it holds the program to |
//! | --- | --- |
//! | [`promised`] | the commands that the documentation promises, and the records that they write |
//! | [`operations`] | every operation with every pacing and pattern, bytes checked |
//! | [`addresses`] | gaps between slots, and their orders at the two ends |
//! | [`roles`] | who initiates towards whom, and how many of them |
//! | [`plans`] | plans, options of length, memory and place, other formats |
//! | [`published`] | figures of others beside ours, and what a machine may lack |
//! | [`places`] | places of pairs on the sockets of this machine |
//! | [`fabric`] | the engine fabric: its commands, records, libraries, devices, and what is refused |
//! | [`ior`] | IOR's command lines and its result block |
//! | [`known_answers`] | links of known speed, links that are cut, and a real Slurm, on hosts of this machine |
//! | [`collective_known_answers`] | collectives over links of known speed |
//! | [`blame`] | remarks that name what took CPU time, and settings of the paths |
//! | [`wire_proof`] | proof that the payload crossed the devices that it should have |
//! | [`clocks`] | ranks of one boot whose clocks differ |
//! | [`connect`] | connections set up over every engine, and refused |
//! | [`background`] | latency beside a load |
//! | [`tune`] | searches for the options that serve a goal best |
//! | [`compare`] | two sides by turns, repetitions of a plan, verdicts |
//! | [`check`] | baselines of records, and hosts that are checked beside them |
//! | [`check_each`] | hosts that are checked each by itself, some of which are late or hang |
//! | [`check_links`] | links of hosts that are checked, and what Slurm makes of it |
//! | [`report`] | pages of records, which are read from them again |
//! | [`browser`] | such pages in a real browser, also where scripts and styles are forbidden |
//! | [`browser_golden`] | drawings as the browser paints them, beside what is stored |
//! | [`export`] | records as other programs read them, files that are replaced whole |
//! | [`stress`] | transfers drawn from a seed, over several engines in turn |
//! | [`mixed`] | plans with experiments of several kinds |
//! | [`reasons`] | the reason of every end with an error, once; ends of which nobody reads |
//! | [`resuming`] | a run that was interrupted goes on where it was |
//! | [`launchers`] | ranks that something else started, and the secret that they share |
//! | [`mpirun`] | real launchers: Open MPI's and MPICH's mpirun, torchrun; and what looks like one |
//! | [`mpiio`] | file experiments by MPI, under the launchers of the MPIs that are installed |
//! | [`hosts`] | ranks on several hosts, which are network namespaces of this machine |
//! | [`kubernetes_manifests`] | contrib/kubernetes: the program started as the pods that manifests describe |
//! | [`slurm_scripts`] | contrib/slurm under a real Slurm |
//! | [`ssh`] | ranks that ssh starts on hosts with a real sshd each |
//! | [`ssh_stand_in`] | faults of hosts, by a script in place of ssh |
//! | [`strangers`] | strangers at the control port |
//! | [`killing`] | ranks that are killed at any phase |
//! | [`signals`] | ranks that are interrupted, stopped or never come |
//! | [`bad_input`] | requests that are refused before a rank starts |
//! | [`output`] | files that cannot be written |
//! | [`surroundings`] | limits of the process, other runs on the same file, standard output and shared memory that do not work |
//! | [`files`] | file experiments: figures that agree, caches, layouts, orders, data |
//! | [`files_verify`] | files that are damaged on purpose |
//! | [`files_refused`] | file experiments that cannot be, files of others, and what is left of it all |
//! | [`files_faults`] | full disks, ranks that are killed or interrupted while they write |
//! | [`files_stonewall`] | phases that end by time |
//! | [`files_hosts`] | file experiments of ranks on several hosts |
//! | [`files_queues`] | transfers that queues really had in flight, and their CPU time |
//! | [`files_memory`] | memory of a rank, which must not grow with its files |
//! | [`gpu_copies`] | copies of a GPU within one process, over the same double |
//! | [`gpu_hip`] | the same of AMD's GPUs, over a double of their runtime |
//! | [`gpu_ipc`] | GPU memory of another process, and staged through pinned memory, over the same double |
//! | [`gpu_memory`] | memories of GPUs, over a double of their driver, and where there is none |
//! | [`support`] | starting the program under a watchdog, and reading its records |
//!
//! Every run has a directory of its own as home and as working directory, and ends within a deadline; then no process
//! of it may be left. Runs last milliseconds: nothing here depends on speed.
//!
//! The modules are marked as tests, so that lints treat their helpers as they treat the tests.

#[cfg(test)]
mod addresses;
#[cfg(test)]
mod background;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod batches;
#[cfg(test)]
mod blame;
#[cfg(test)]
mod both_ways;
#[cfg(test)]
mod browser;
#[cfg(test)]
mod browser_golden;
#[cfg(test)]
mod check;
#[cfg(test)]
mod check_each;
#[cfg(test)]
mod check_links;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod clocks;
#[cfg(test)]
mod collective;
#[cfg(test)]
mod collective_known_answers;
#[cfg(test)]
mod collective_mpi;
#[cfg(test)]
mod collective_torch;
#[cfg(test)]
mod compare;
#[cfg(test)]
mod connect;
#[cfg(test)]
mod cq;
#[cfg(test)]
mod export;
#[cfg(test)]
mod fabric;
#[cfg(test)]
mod files;
#[cfg(test)]
mod files_faults;
#[cfg(test)]
mod files_hosts;
#[cfg(test)]
mod files_memory;
#[cfg(test)]
mod files_queues;
#[cfg(test)]
mod files_refused;
#[cfg(test)]
mod files_stonewall;
#[cfg(test)]
mod files_verify;
#[cfg(test)]
mod gpu_copies;
#[cfg(test)]
mod gpu_drivers;
#[cfg(test)]
mod gpu_hip;
mod gpu_ipc;
#[cfg(test)]
mod gpu_memory;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod intervals;
#[cfg(test)]
mod ior;
#[cfg(test)]
mod killing;
#[cfg(test)]
mod known_answers;
#[cfg(test)]
mod kubernetes_manifests;
#[cfg(test)]
mod launchers;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod library;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod mixed;
#[cfg(test)]
mod mpiio;
#[cfg(test)]
mod mpirun;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod output;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod per_rank;
#[cfg(test)]
mod places;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod promised;
#[cfg(test)]
mod published;
#[cfg(test)]
mod rails;
#[cfg(test)]
mod reasons;
#[cfg(test)]
mod report;
#[cfg(test)]
mod resuming;
#[cfg(test)]
mod roles;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod slurm_scripts;
#[cfg(test)]
mod ssh;
#[cfg(test)]
mod ssh_stand_in;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod stress;
#[cfg(test)]
mod support;
#[cfg(test)]
mod surroundings;
#[cfg(test)]
mod target_memory;
#[cfg(test)]
mod traffic_file;
#[cfg(test)]
mod tune;
#[cfg(test)]
mod wire_proof;
