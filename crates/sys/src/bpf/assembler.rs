//! A hand-written assembler for eBPF (Linux,
//! Documentation/bpf/standardization/instruction-set.rst), with labels for jumps. Covers only the
//! instructions needed here.

use std::os::fd::{AsRawFd, BorrowedFd};

/// An instruction in the kernel's encoding.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    code: u8,
    /// Destination register in the lower four bits, source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A register. A call takes its arguments in R1 to R5, returns in R0, and preserves R6 to R9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "registers have numbers, and nothing more to say")]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    /// Frame pointer: the end of the 512-byte stack; read-only.
    R10,
}

/// Width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A byte.
    B = 0x10,
    /// Two bytes.
    H = 0x08,
    /// Four bytes.
    W = 0x00,
    /// Eight bytes.
    Dw = 0x18,
}

/// A 64-bit arithmetic or logical operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `dst += src`
    Add = 0x00,
    /// `dst -= src`
    Sub = 0x10,
    /// `dst *= src`
    Mul = 0x20,
    /// `dst /= src`, unsigned
    Div = 0x30,
    /// `dst &= src`
    And = 0x50,
    /// `dst |= src`
    Or = 0x40,
    /// `dst <<= src`
    Shl = 0x60,
    /// `dst >>= src`, unsigned
    Shr = 0x70,
    /// `dst ^= src`
    Xor = 0xa0,
    /// `dst = src`
    Mov = 0xb0,
}

/// An unsigned 64-bit comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    /// `dst == src`
    Eq = 0x10,
    /// `dst > src`
    Gt = 0x20,
    /// `dst >= src`
    Ge = 0x30,
    /// `dst != src`
    Ne = 0x50,
    /// `dst < src`
    Lt = 0xa0,
    /// `dst <= src`
    Le = 0xb0,
}

mod class {
    pub(super) const LD: u8 = 0x00;
    pub(super) const LDX: u8 = 0x01;
    pub(super) const STX: u8 = 0x03;
    pub(super) const JMP: u8 = 0x05;
    pub(super) const ALU64: u8 = 0x07;
}

mod mode {
    pub(super) const IMM: u8 = 0x00;
    pub(super) const ABS: u8 = 0x20;
    pub(super) const MEM: u8 = 0x60;
    pub(super) const ATOMIC: u8 = 0xc0;
}

const FROM_REGISTER: u8 = 0x08;
const ALWAYS: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;

/// Source-register values that give the immediate of a 64-bit load its meaning.
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

/// A jump target in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub struct Assembler {
    program: Vec<Instruction>,
    /// Position of each label, once placed.
    labels: Vec<Option<usize>>,
    /// Position and target of each jump.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// Creates a label to be placed later in the program. Jumps only go forward: the verifier
    /// accepts no loops, and there are none.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places the label at the current position.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.program.len());
    }

    /// Emits an operation on two registers.
    pub fn op(&mut self, op: Op, dst: Reg, src: Reg) {
        self.push(class::ALU64 | op as u8 | FROM_REGISTER, dst, src, 0, 0);
    }

    /// Emits an operation with an immediate, which is sign-extended.
    pub fn op_imm(&mut self, op: Op, dst: Reg, number: i32) {
        self.push(class::ALU64 | op as u8, dst, Reg::R0, 0, number);
    }

    /// `dst = *(address + offset)`
    pub fn load(&mut self, size: Size, dst: Reg, address: Reg, offset: i16) {
        self.push(class::LDX | mode::MEM | size as u8, dst, address, offset, 0);
    }

    /// `*(address + offset) = src`
    pub fn store(&mut self, size: Size, address: Reg, offset: i16, src: Reg) {
        self.push(class::STX | mode::MEM | size as u8, address, src, offset, 0);
    }

    /// `*(address + offset) += src`, an atomic 64-bit add.
    pub fn atomic_add(&mut self, address: Reg, offset: i16, src: Reg) {
        let code = class::STX | mode::ATOMIC | Size::Dw as u8;
        self.push(code, address, src, offset, 0);
    }

    /// `R0` = up to four bytes of the packet, as a number in network byte order. R6 must be the
    /// context; R1 to R5 are clobbered. A packet that is shorter ends the program with 0.
    pub fn load_packet(&mut self, size: Size, at: i32) {
        self.push(class::LD | mode::ABS | size as u8, Reg::R0, Reg::R0, 0, at);
    }

    /// `dst` = a 64-bit number.
    pub fn load_number(&mut self, dst: Reg, number: u64) {
        self.wide(dst, 0, number as i32, (number >> 32) as i32);
    }

    /// `dst` = a map, as a helper's argument.
    pub fn load_map(&mut self, dst: Reg, map: BorrowedFd<'_>) {
        self.wide(dst, PSEUDO_MAP_FD, map.as_raw_fd(), 0);
    }

    /// `dst` = the address of the value in an array map's first entry.
    pub fn load_map_value(&mut self, dst: Reg, map: BorrowedFd<'_>) {
        self.wide(dst, PSEUDO_MAP_VALUE, map.as_raw_fd(), 0);
    }

    /// Jumps to the label.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.program.len(), to));
        self.push(class::JMP | ALWAYS, Reg::R0, Reg::R0, 0, 0);
    }

    /// Jumps to the label if the comparison of two registers holds.
    pub fn jump_if(&mut self, cmp: Cmp, dst: Reg, src: Reg, to: Label) {
        self.jumps.push((self.program.len(), to));
        self.push(class::JMP | cmp as u8 | FROM_REGISTER, dst, src, 0, 0);
    }

    /// Like [`jump_if`](Self::jump_if), with an immediate, which is sign-extended.
    pub fn jump_if_imm(&mut self, cmp: Cmp, dst: Reg, number: i32, to: Label) {
        self.jumps.push((self.program.len(), to));
        self.push(class::JMP | cmp as u8, dst, Reg::R0, 0, number);
    }

    /// Calls a helper.
    pub fn call(&mut self, helper: i32) {
        self.push(class::JMP | CALL, Reg::R0, Reg::R0, 0, helper);
    }

    /// Ends the program with R0.
    pub fn exit(&mut self) {
        self.push(class::JMP | EXIT, Reg::R0, Reg::R0, 0, 0);
    }

    /// Resolves all jumps and returns the program.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, Label(label)) in self.jumps {
            let target = self.labels[label].unwrap_or(self.program.len());
            self.program[at].offset = (target - at - 1) as i16;
        }
        self.program
    }

    fn push(&mut self, code: u8, dst: Reg, src: Reg, offset: i16, immediate: i32) {
        let registers = dst as u8 | (src as u8) << 4;
        self.program.push(Instruction { code, registers, offset, immediate });
    }

    fn wide(&mut self, dst: Reg, kind: u8, low: i32, high: i32) {
        let registers = dst as u8 | kind << 4;
        let code = class::LD | mode::IMM | Size::Dw as u8;
        self.program.push(Instruction { code, registers, offset: 0, immediate: low });
        self.program.push(Instruction { immediate: high, ..Instruction::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_what_the_kernel_calls_them() {
        let mut program = Assembler::default();
        let end = program.label();
        program.op(Op::Mov, Reg::R6, Reg::R1);
        program.load_packet(Size::B, 13);
        program.jump_if_imm(Cmp::Ne, Reg::R0, 2, end);
        program.load_number(Reg::R2, 0x1_0000_0002);
        program.place(end);
        program.exit();
        let codes: Vec<_> = program
            .finish()
            .into_iter()
            .map(|it| (it.code, it.registers, it.offset, it.immediate))
            .collect();
        let expected = [
            (0xbf, 0x16, 0, 0),
            (0x30, 0x00, 0, 13),
            (0x55, 0x00, 2, 2),
            (0x18, 0x02, 0, 2),
            (0x00, 0x00, 0, 1),
            (0x95, 0x00, 0, 0),
        ];
        assert_eq!(codes, expected);
    }
}
