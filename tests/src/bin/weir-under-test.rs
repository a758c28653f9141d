//! The shipped program under a name that the integration tests of this package can start.
//! It must stay empty: whatever is tested is in package `weir`.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::main()
}
