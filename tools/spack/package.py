# Poise as a package of Spack. UNTESTED: Spack was not at hand when this was
# written; the names of variants and dependencies are those of its documentation.
# Copy the folder to packages/poise of a repository of yours:
#   spack repo create mine && mkdir -p mine/packages/poise
#   cp package.py mine/packages/poise/ && spack repo add mine
#   spack install poise@main

from spack.package import *


class Poise(MesonPackage):
    """Data-intensive parallel computing that runs evenly on uneven machines."""

    homepage = "file:///where/you/cloned/poise"
    git = "file:///where/you/cloned/poise"

    license("MIT")

    version("main", branch="main")
    version("0.2.0", tag="v0.2.0")

    variant("openmpi", default=True, description="the part for Open MPI")
    variant("mpich", default=False, description="the part for MPICH")
    variant("hwloc", default=True, description="NUMA domains of ranks")
    variant("sqlite", default=True, description="inventories as SQLite files")
    variant("zlib", default=True, description="graphs packed by gzip")
    variant("openssl", default=True,
            description="send, tunnel, wire, vnc, solve on several nodes")
    variant("curl", default=False, description="calls of etcd")
    variant("otf2", default=False, description="traces as OTF2 archives")

    depends_on("c", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3:", type="build")
    depends_on("xxhash")
    depends_on("zstd")
    depends_on("openmpi", when="+openmpi")
    depends_on("mpich", when="+mpich")
    depends_on("hwloc", when="+hwloc")
    depends_on("sqlite@3:", when="+sqlite")
    depends_on("zlib-api", when="+zlib")
    depends_on("openssl@3:", when="+openssl")
    depends_on("curl", when="+curl")
    depends_on("otf2", when="+otf2")

    def meson_args(self):
        options = {"openmpi": "ompi", "mpich": "mpich", "hwloc": "hwloc",
                   "sqlite": "sqlite", "zlib": "zlib", "openssl": "openssl",
                   "curl": "curl", "otf2": "otf2"}
        return [f"-D{option}="
                + ("enabled" if f"+{variant}" in self.spec else "disabled")
                for variant, option in options.items()]
