//! The binary: everything is in the library, so that tests can build the same program.

fn main() -> std::process::ExitCode {
    weir::main()
}
