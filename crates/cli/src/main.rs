//! The binary. All code is in the library, so that tests can use the same program.

fn main() -> std::process::ExitCode {
    weir::main()
}
