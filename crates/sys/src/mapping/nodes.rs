//! Reports the actual NUMA nodes of an [`Arena`]'s pages. They may differ from the preferred node, because the kernel
//! uses other nodes when that node is full.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::ptr::null;

use super::Arena;
use crate::library::outcome;

/// Maximum number of pages to query. A larger arena is sampled evenly.
const PAGES_MAX: usize = 4096;

impl Arena {
    /// Returns the number of pages per node, among all pages or an even sample of 4096.
    ///
    /// # Errors
    /// The system's error: some containers forbid the call, and kernels without NUMA lack it.
    pub fn nodes(&self) -> io::Result<BTreeMap<u32, u64>> {
        let page = rustix::param::page_size();
        let all = self.len / page;
        let count = all.min(PAGES_MAX);
        let address = |index: usize| self.base.as_ptr().wrapping_add(index * all / count * page);
        let pages: Vec<*const c_void> = (0..count)
            .map(|index| address(index).cast_const().cast())
            .collect();
        let mut answers: Vec<c_int> = vec![-libc::ENOENT; count];
        let (this_process, stay) = (0, null::<c_int>());
        // SAFETY: without a list of nodes the call moves nothing and reads no memory at the addresses; it writes one
        // answer for each of the `count` addresses, and both lists have that length and outlive the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                this_process,
                count as c_ulong,
                pages.as_ptr(),
                stay,
                answers.as_mut_ptr(),
                0,
            )
        };
        outcome(result).map(|()| count_nodes(&answers))
    }
}

/// Counts the pages per node; a negative answer is an error code for a missing page.
fn count_nodes(answers: &[c_int]) -> BTreeMap<u32, u64> {
    let mut nodes = BTreeMap::new();
    for node in answers
        .iter()
        .filter_map(|&answer| u32::try_from(answer).ok())
    {
        *nodes.entry(node).or_default() += 1;
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Pages, Sharing};

    #[test]
    fn pages_are_counted_by_their_node() {
        let nodes = count_nodes(&[0, 1, 1, -libc::ENOENT, 0, 1, -libc::EFAULT]);
        assert_eq!(nodes, BTreeMap::from([(0, 2), (1, 3)]));
    }

    #[test]
    fn every_queried_page_has_a_node() {
        let page = rustix::param::page_size();
        for sharing in [Sharing::Private, Sharing::Shared] {
            for pages in [1, 3, PAGES_MAX, 3 * PAGES_MAX + 1] {
                let arena = Arena::allocate(pages * page, Pages::Small, sharing, None).unwrap();
                match arena.nodes() {
                    Ok(nodes) => {
                        assert_eq!(nodes.values().sum::<u64>(), pages.min(PAGES_MAX) as u64)
                    }
                    Err(error) => {
                        println!("skip: the kernel does not report the nodes of pages: {error}");
                        return;
                    }
                }
            }
        }
    }
}
