//! The list of makers of GPUs.

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
