//! Environment variables that affect communication libraries. Records contain them.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Variables with these prefixes are recorded.
const PREFIXES: &str = "CUDA_DEVICE_ CUDA_VISIBLE_ EFA_ FI_ GLOO_ GOMP_ HIP_VISIBLE_ HSA_ I_MPI_FABRICS I_MPI_OFI_ \
    KMP_ MALLOC_ MLX5_ MPICH_OFI_ NCCL_ NVSHMEM_ OMP_ OMPI_MCA_btl OMPI_MCA_mtl OMPI_MCA_pml RCCL_ RDMAV_ UCX_";

/// Variables with exactly these names are recorded too.
const NAMES: &str = "GLIBC_TUNABLES IBV_FORK_SAFE LD_LIBRARY_PATH LD_PRELOAD OFI_NCCL_PROTOCOL \
    ROCR_VISIBLE_DEVICES";

/// A variable with one of these words in its name, in any case, is never recorded.
const SECRET: &str = "SECRET TOKEN PASSWORD PASSWD CREDENTIAL AUTH KEY";

/// Longer values are cut, so that a record stays compact.
const VALUE_CHARS_MAX: usize = 256;

/// Returns the recorded variables among `all`, including those named in `more`. Values beyond 256 characters end in
/// "…".
pub(super) fn recorded_variables(
    all: impl Iterator<Item = (OsString, OsString)>,
    more: &[&str],
) -> BTreeMap<String, String> {
    all.filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let steers = NAMES.split_whitespace().any(|one| one == name)
            || more.contains(&&*name)
            || PREFIXES
                .split_whitespace()
                .any(|prefix| name.starts_with(prefix));
        let is_recorded = steers && !names_a_secret(&name);
        is_recorded.then(|| (name, shorten(&value.to_string_lossy())))
    })
    .collect()
}

/// Returns whether a variable with this name may hold a secret.
pub fn names_a_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRET.split_whitespace().any(|word| upper.contains(word))
}

fn shorten(value: &str) -> String {
    match value.char_indices().nth(VALUE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", value.get(..at).unwrap_or_default()),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        let all = variables.iter();
        let all = all.map(|(name, value)| (name.into(), value.into()));
        recorded_variables(all, &["TONNAGE_MPI", "MY_TOKEN"])
    }

    #[test]
    fn only_relevant_variables_are_recorded() {
        let found = recorded(&[
            ("FI_PROVIDER", "tcp"),
            ("UCX_TLS", "rc"),
            ("NCCL_IB_HCA", "mlx5_0"),
            ("LD_PRELOAD", ""),
            ("HOME", "/root"),
            ("XFI_PROVIDER", "x"),
            ("TONNAGE_MPI", "/opt/mpi/libmpi.so"),
            ("TONNAGE_MPI_X", "x"),
        ]);
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        let names = names.join(" ");
        assert_eq!(
            names,
            "FI_PROVIDER LD_PRELOAD NCCL_IB_HCA TONNAGE_MPI UCX_TLS"
        );
        assert_eq!(found["UCX_TLS"], "rc");
    }

    #[test]
    fn secrets_are_never_recorded() {
        let names = "TONNAGE_SECRET TONNAGE_SECRET_FILE FI_OPX_AUTH_KEY NCCL_Token UCX_password NCCL_CREDENTIALS \
                     FI_secret_x MY_TOKEN";
        for name in names.split(' ') {
            assert!(recorded(&[(name, "hidden")]).is_empty(), "{name}");
        }
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let found = recorded(&[("FI_LOG_LEVEL", &"é".repeat(1000))]);
        assert_eq!(found["FI_LOG_LEVEL"].chars().count(), VALUE_CHARS_MAX + 1);
        assert!(found["FI_LOG_LEVEL"].ends_with('…'));
        let exact = "x".repeat(VALUE_CHARS_MAX);
        assert_eq!(recorded(&[("FI_LOG_LEVEL", &exact)])["FI_LOG_LEVEL"], exact);
    }
}
