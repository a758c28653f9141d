//! The thread that compresses files for the loops of a process.
//!
//! It runs only while a processor has nothing else to do (SCHED_IDLE), so that it takes time in
//! which loops sleep, and a loop that sleeps refuses nothing. What the kernel gives it beside a
//! loop that is always busy, 0.3 % of a processor, lengthens the work-phases, of which the accept
//! policies know how long they take. What it gets of the processors is all that it knows of the
//! load; how much work it puts into a form follows from that.

use std::sync::{Arc, Weak};
use std::thread;

use weir_content::{CompressionTask, Compressor, Form, Level, SpareTime};
use weir_sys::{heap, namespace, process};

/// A compressor whose thread is there while it has tasks: the end of a process waits for each of
/// its threads, and one of the lowest priority may be long in ending.
#[derive(Debug)]
pub(crate) struct CompressorThread(Arc<Compressor>);

impl CompressorThread {
    /// Creates a compressor whose thread runs on these processors, or on any. Up to
    /// `unclaimed_bytes_max` bytes of what it makes are kept for loops that have not come for it.
    pub(crate) fn new(unclaimed_bytes_max: u64, cpus: &[usize]) -> Self {
        let cpus = cpus.to_vec();
        Self(Arc::new_cyclic(|own| {
            let own = Weak::clone(own);
            Compressor::new(unclaimed_bytes_max, Box::new(move || start(&own, &cpus)))
        }))
    }

    /// Returns the compressor, for the stores.
    pub(crate) fn compressor(&self) -> &Arc<Compressor> {
        &self.0
    }
}

impl Drop for CompressorThread {
    /// Lets the thread end after its task, and does not wait for it: that may take long while
    /// others need the processors, and nobody is there to send what it makes.
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Starts the thread; returns whether there is one.
fn start(compressor: &Weak<Compressor>, cpus: &[usize]) -> bool {
    let Some(own) = compressor.upgrade() else { return false };
    let cpus = cpus.to_vec();
    let work = move || {
        if !cpus.is_empty() {
            // The loops, which are there too, say so if these processors are not allowed.
            let _ = namespace::run_on(&cpus);
        }
        heap::settle_at_end();
        // Where it may not, it runs beside the loops as any other thread does.
        let _ = process::run_when_idle();
        run(&own);
    };
    thread::Builder::new().name("weir-compress".into()).spawn(work).is_ok()
}

fn run(compressor: &Compressor) {
    let mut spare = SpareTime::default();
    while let Some(task) = compressor.next_task() {
        carry_out(compressor, &task, &mut spare);
        compressor.finish(&task);
    }
}

/// Makes a form quickly, and then a better one if there was time to spare and no other waits.
fn carry_out(compressor: &Compressor, task: &CompressionTask, spare: &mut SpareTime) {
    let mut level = Level::Fast;
    loop {
        let (began_ns, began_cpu_ns) = (process::monotonic_ns(), process::thread_cpu_clock_ns());
        let body = task.compress(level);
        let ended_ns = process::monotonic_ns();
        let spent_ns = process::thread_cpu_clock_ns() - began_cpu_ns;
        spare.note(ended_ns, spent_ns, ended_ns - began_ns);
        let is_useful = body.is_some();
        compressor.publish(task, Form::new(body, level, spent_ns));
        let next = spare.level();
        if !is_useful || next <= level || compressor.has_tasks() {
            return;
        }
        level = next;
    }
}
