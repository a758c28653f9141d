//! Properties of the machine that affect measurements: read from /proc and /sys, and kept with the
//! results. Properties that the machine does not report are absent. Nothing here judges or changes
//! anything.

use std::collections::BTreeMap;
use std::path::Path;

use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

/// Settings of the host that affect measurements and either belong to no namespace or are the
/// initial values in a new one.
const SYSCTLS: [&str; 16] = [
    "fs.file-max",
    "fs.nr_open",
    "kernel.nmi_watchdog",
    "kernel.perf_event_paranoid",
    "kernel.sched_autogroup_enabled",
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "vm.overcommit_memory",
    "vm.swappiness",
];

/// Prefixes of kernel parameters that affect measurements (kernel-parameters(7)).
const KERNEL_OPTIONS: [&str; 12] = [
    "mitigations=",
    "isolcpus=",
    "nohz",
    "rcu_nocbs",
    "idle=",
    "processor.max_cstate=",
    "intel_idle.",
    "cpuidle",
    "haltpoll",
    "intel_pstate=",
    "tsc=",
    "clocksource=",
];

/// A snapshot of the machine.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Machine {
    /// Kernel release: `6.1.0-18-amd64`.
    pub kernel_release: Option<String>,
    /// Kernel version: build and options.
    pub kernel_version: Option<String>,
    /// Parameters on the kernel command line that affect measurements. The others are left out, as
    /// a command line may hold secrets.
    pub kernel_command_line: Option<String>,
    /// Timer interrupts per second (CONFIG_HZ).
    pub kernel_hz: Option<u32>,
    /// True if interrupt time is accounted separately from programs' (CONFIG_IRQ_TIME_ACCOUNTING).
    pub irq_time_accounting: Option<bool>,
    /// Ticks per second, the unit of CPU time in /proc.
    pub clock_ticks_per_s: Option<u64>,
    /// Name of the distribution.
    pub distribution: Option<String>,
    /// Name of the processor.
    pub cpu_model: Option<String>,
    /// Number of processors online.
    pub cpus_online: Option<usize>,
    /// Number of processors that this process may use.
    pub cpus_allowed: Option<usize>,
    /// True if simultaneous multithreading is active.
    pub smt_active: Option<bool>,
    /// Processors excluded from general scheduling (isolcpus).
    pub cpus_isolated: Option<String>,
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Swap space, in bytes.
    pub swap_bytes: Option<u64>,
    /// True if the processor reports that it belongs to a virtual machine.
    pub is_guest: Option<bool>,
    /// Product name given by the firmware: `KVM`, `VirtualBox`, a manufacturer's product.
    pub product: Option<String>,
    /// Clock source of the kernel.
    pub clock_source: Option<String>,
    /// Frequency governor of the first processor.
    pub cpufreq_governor: Option<String>,
    /// Modes of transparent huge pages, with the active one in brackets.
    pub transparent_hugepages: Option<String>,
    /// Mitigations of CPU vulnerabilities, by the name of the vulnerability.
    pub mitigations: BTreeMap<String, String>,
    /// Load average over 1, 5 and 15 minutes: processes running or waiting to run.
    pub load_average: Option<[f64; 3]>,
    /// Hard limit on open file descriptors; absent if there is none.
    pub open_files_max: Option<u64>,
    /// Host settings, by name.
    pub sysctl: BTreeMap<String, String>,
}

/// Takes a snapshot of this machine.
pub fn machine() -> Machine {
    let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
    let meminfo = text("/proc/meminfo").unwrap_or_default();
    let release = line("/proc/sys/kernel/osrelease");
    let config = kernel_config(release.as_deref()).unwrap_or_default();
    let cpu = "/sys/devices/system/cpu";
    let list = |file: &str| crate::testbed::parse_list(&line(file)?).ok();
    Machine {
        kernel_version: line("/proc/sys/kernel/version"),
        kernel_release: release,
        kernel_command_line: line("/proc/cmdline").map(|words| of_interest(&words)),
        kernel_hz: option(&config, "CONFIG_HZ").and_then(|value| value.parse().ok()),
        irq_time_accounting: irq_time_accounting(&config),
        clock_ticks_per_s: Some(rustix::param::clock_ticks_per_second()),
        distribution: text("/etc/os-release").and_then(|text| pretty_name(&text)),
        cpu_model: field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "Model")),
        cpus_online: list(&format!("{cpu}/online")).map(|cpus| cpus.len()),
        cpus_allowed: weir_sys::process::allowed_cpus().ok().map(|cpus| cpus.len()),
        smt_active: line(format!("{cpu}/smt/active")).map(|value| value == "1"),
        cpus_isolated: line(format!("{cpu}/isolated")),
        memory_bytes: kibibytes(&meminfo, "MemTotal"),
        swap_bytes: kibibytes(&meminfo, "SwapTotal"),
        is_guest: is_guest(&cpuinfo),
        product: line("/sys/class/dmi/id/product_name"),
        clock_source: clock_source(),
        cpufreq_governor: line(format!("{cpu}/cpu0/cpufreq/scaling_governor")),
        transparent_hugepages: line("/sys/kernel/mm/transparent_hugepage/enabled"),
        mitigations: files(&format!("{cpu}/vulnerabilities")),
        load_average: load_average(),
        open_files_max: open_files_max(),
        sysctl: SYSCTLS.iter().filter_map(|&name| Some((name.to_owned(), sysctl(name)?))).collect(),
    }
}

/// Filters a kernel command line for the parameters that affect measurements.
fn of_interest(words: &str) -> String {
    let wanted = |word: &&str| KERNEL_OPTIONS.iter().any(|option| word.starts_with(option));
    words.split_whitespace().filter(wanted).collect::<Vec<_>>().join(" ")
}

/// Returns the load average over 1, 5 and 15 minutes: processes running or waiting to run
/// (proc_loadavg(5)).
pub(crate) fn load_average() -> Option<[f64; 3]> {
    let text = line("/proc/loadavg")?;
    let mut numbers = text.split(' ').map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

/// Returns the hard limit on open file descriptors of this process; `None` if there is none.
pub(crate) fn open_files_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum
}

/// Returns the clock source of the kernel.
pub(crate) fn clock_source() -> Option<String> {
    line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// Reads a file; returns `None` if it is unreadable or blank.
pub(crate) fn text(file: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    (!text.trim().is_empty()).then_some(text)
}

/// Reads a file's words, joined by single spaces; returns `None` if there are none.
fn line(file: impl AsRef<Path>) -> Option<String> {
    Some(text(file)?.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn sysctl(name: &str) -> Option<String> {
    line(Path::new("/proc/sys").join(name.replace('.', "/")))
}

/// Reads the words of each file in a directory, by file name.
fn files(directory: &str) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let read = |entry: std::fs::DirEntry| {
        Some((entry.file_name().into_string().ok()?, line(entry.path())?))
    };
    entries.filter_map(read).collect()
}

/// Returns the value after the first `name :`, in the format of /proc/cpuinfo and /proc/meminfo.
fn field(text: &str, name: &str) -> Option<String> {
    let named = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    };
    text.lines().find_map(named)
}

fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let value: u64 = field(meminfo, name)?.strip_suffix(" kB")?.parse().ok()?;
    value.checked_mul(1024)
}

/// Returns whether the processor reports a hypervisor; `None` except on x86, which has the flag.
fn is_guest(cpuinfo: &str) -> Option<bool> {
    Some(field(cpuinfo, "flags")?.split(' ').any(|flag| flag == "hypervisor"))
}

fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

/// Reads the kernel's build options: from `/boot`, where distributions put them, or from the kernel
/// itself.
fn kernel_config(release: Option<&str>) -> Option<String> {
    let on_disk = release.and_then(|release| text(format!("/boot/config-{release}")));
    on_disk.or_else(|| {
        let packed = std::fs::File::open("/proc/config.gz").ok()?;
        std::io::read_to_string(GzDecoder::new(packed)).ok()
    })
}

fn option<'a>(config: &'a str, name: &str) -> Option<&'a str> {
    config.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

fn irq_time_accounting(config: &str) -> Option<bool> {
    let name = "CONFIG_IRQ_TIME_ACCOUNTING";
    let off = format!("# {name} is not set");
    option(config, name).map(|value| value == "y").or(config.contains(&off).then_some(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_kernels_options_those_that_matter_are_kept() {
        let line = "console=ttyS0 isolcpus=1 token=secret haltpoll.guest_halt_poll_ns=0 quiet";
        assert_eq!(of_interest(line), "isolcpus=1 haltpoll.guest_halt_poll_ns=0");
    }

    #[test]
    fn this_machine_has_a_kernel_a_processor_and_memory() {
        let machine = machine();
        assert!(machine.kernel_release.as_ref().is_some_and(|release| release.contains('.')));
        assert!(machine.cpus_allowed.is_some_and(|count| count > 0));
        assert!(machine.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(machine.load_average.is_some());
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
    }

    #[test]
    fn the_first_field_of_a_name_is_read() {
        let text = "model\t: 1\nmodel name\t: A: B\nmodel name\t: C\nflags\t\t: fpu hypervisor\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(is_guest(text), Some(true));
        assert_eq!(is_guest("flags : fpu\n"), Some(false));
        assert_eq!(is_guest("Features : fp\n"), None);
        assert_eq!(kibibytes("MemTotal:       2 kB\n", "MemTotal"), Some(2048));
    }

    #[test]
    fn a_kernels_options_are_on_off_or_unknown() {
        let config = "CONFIG_HZ_250=y\nCONFIG_HZ=250\n# CONFIG_IRQ_TIME_ACCOUNTING is not set\n";
        assert_eq!(option(config, "CONFIG_HZ"), Some("250"));
        assert_eq!(irq_time_accounting(config), Some(false));
        assert_eq!(irq_time_accounting("CONFIG_IRQ_TIME_ACCOUNTING=y\n"), Some(true));
        assert_eq!(irq_time_accounting(""), None);
    }

    #[test]
    fn a_distribution_is_named_without_quotes() {
        let text = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n";
        assert_eq!(pretty_name(text).as_deref(), Some("Debian GNU/Linux 12"));
    }
}
