//! The list of makers of GPUs.

use tonnage_engine::split_name;
use tonnage_sys::cuda::GpuDriver;

use super::amd::AMD;
use super::nvidia::NVIDIA;
use super::vendor::GpuVendor;

/// All of them.
pub(crate) static VENDORS: [&GpuVendor; 2] = [NVIDIA, AMD];

/// The maker whose driver this is.
pub(crate) fn vendor_of(driver: &GpuDriver) -> &'static GpuVendor {
    let of = |vendor: &&&GpuVendor| vendor.driver.name == driver.name;
    VENDORS.iter().find(of).copied().unwrap_or(NVIDIA)
}

/// The maker whose GPUs a memory of this name, with or without a number, is of.
pub(crate) fn vendor_of_memory(name: &str) -> Option<&'static GpuVendor> {
    let (name, _) = split_name(name);
    VENDORS.into_iter().find(|vendor| vendor.memory == name)
}

/// Makers of GPUs, as `tonnage devices` names them, each with the name of the memory of its GPUs; the most usual first.
pub fn known_gpu_makers() -> Vec<(&'static str, &'static str)> {
    let both = |vendor: &GpuVendor| (vendor.maker, vendor.memory);
    VENDORS.into_iter().map(both).collect()
}
