"""The recipe of tonnage for Spack 1.0 and later; contrib/spack/README.md says how it is used."""

from pathlib import Path

from spack_repo.builtin.build_systems.cargo import CargoPackage

from spack.package import *

# This checkout is the source: contrib/spack/spack_repo/tonnage/packages/tonnage/package.py is six folders below it.
ROOT = Path(__file__).resolve().parents[6]


class Tonnage(CargoPackage):
    """Measures how fast bytes really move in a cluster, and where they slow down:
    over libfabric, RDMA verbs, shared memory, files and collectives."""

    git = ROOT.as_uri()

    license("MIT OR Apache-2.0")

    version("main", branch="main")
    version("0.1.0", branch="main", preferred=True)

    variant("libfabric", default=True, description="Fabrics beyond tcp and shm, by Spack's libfabric")
    variant("verbs", default=False, description="RDMA devices, by Spack's rdma-core")
    variant("pmix", default=False, description="Ranks under srun --mpi=pmix and Open MPI's mpirun")
    variant("mpi", default=False, description="Engine mpiio and backend mpi, by Spack's MPI")

    # A C compiler for the libfabric inside; no library of Spack's is linked.
    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")

    # Loaded when a run asks for them.
    with default_args(type="run"):
        depends_on("libfabric", when="+libfabric")
        depends_on("rdma-core", when="+verbs")
        depends_on("pmix", when="+pmix")
        depends_on("mpi", when="+mpi")

    @property
    def build_directory(self):
        return join_path(self.stage.source_path, "crates", "tonnage")

    @property
    def build_args(self):
        return ["--locked"]

    @run_after("install")
    def install_pages(self):
        tonnage = Executable(self.prefix.bin.tonnage)
        tonnage("man", "--dir", self.prefix.share.man.man1)
        for path, shell, name in (
            (bash_completion_path(self.prefix), "bash", "tonnage"),
            (zsh_completion_path(self.prefix), "zsh", "_tonnage"),
            (fish_completion_path(self.prefix), "fish", "tonnage.fish"),
        ):
            mkdirp(path)
            with open(join_path(path, name), "w") as file:
                tonnage("completions", shell, output=file)

    def setup_run_environment(self, env):
        for name in ("libfabric", "rdma-core", "pmix", "mpi"):
            if name in self.spec:
                for directory in self.spec[name].libs.directories:
                    env.prepend_path("LD_LIBRARY_PATH", directory)

    def test_transfer(self):
        """bytes move between two ranks by the libfabric inside"""
        tonnage = Executable(self.prefix.bin.tonnage)
        tonnage("transfer", "--engine", "fabric:tcp", "--libfabric", "embedded", "--op", "write", "--ranks", "2",
                "--sizes", "4k", "--verify", "--trials", "2", "--trial-time", "5ms", "--bound", "none")
