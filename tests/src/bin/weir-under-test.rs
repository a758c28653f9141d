//! The shipped program under a name that the integration tests of this package can start. Contains
//! no code of its own: everything under test is in package `weir`.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::main()
}
