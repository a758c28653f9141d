//! Processors: their assignment to the sides, and the formats of lists and masks.
//!
//! The assignment is pure: allowed processors and those that share a core are arguments.

/// The processors of each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The server's processors.
    pub(super) server: Vec<usize>,
    /// The client's processors.
    pub(super) client: Vec<usize>,
    /// Problems with the choice, as sentences.
    pub(super) warnings: Vec<String>,
}

/// Parses a list such as `0,2-3`, as `taskset -c` and /sys write it (cpuset(7), "List format").
///
/// # Errors
/// Returns a sentence if the text is not such a list.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("{text:?} is not a list of processors such as 0,2-3");
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u16>().map(usize::from).map_err(|_| wrong());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Formats the list that [`parse_list`] reads; `cpus` must ascend.
pub fn format_list(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b);
    let written = runs.map(|run| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    written.collect::<Vec<_>>().join(",")
}

/// Formats a mask as the kernel reads it: hexadecimal, a comma before each 32 bits (cpuset(7),
/// "Mask format").
pub(super) fn format_mask(cpus: &[usize]) -> String {
    let words = cpus.iter().max().map_or(1, |max| max / 32 + 1);
    let word = |index: usize| {
        let bits = cpus.iter().filter(|&&cpu| cpu / 32 == index).map(|cpu| 1_u32 << (cpu % 32));
        format!("{:08x}", bits.fold(0, |mask, bit| mask | bit))
    };
    (0..words).rev().map(word).collect::<Vec<_>>().join(",")
}

/// Gives each side the requested processors, or else one each, on two cores if there are two.
///
/// # Errors
/// Returns a sentence if a requested processor may not be used, or if there is none.
pub(super) fn choose(
    server: Option<&[usize]>,
    client: Option<&[usize]>,
    allowed: &[usize],
    siblings: impl Fn(usize) -> Vec<usize>,
) -> Result<Choice, String> {
    for asked in [server, client].into_iter().flatten() {
        refuse_unusable(asked, allowed)?;
    }
    let client_taken = client.unwrap_or_default();
    let server = match server {
        Some(server) => ordered(server),
        None => vec![pick(allowed, client_taken, &siblings)?],
    };
    let client = match client {
        Some(client) => ordered(client),
        None => vec![pick(allowed, &server, &siblings)?],
    };
    let warnings = judge(&server, &client, &siblings).into_iter().collect();
    Ok(Choice { server, client, warnings })
}

fn refuse_unusable(asked: &[usize], allowed: &[usize]) -> Result<(), String> {
    let list = format_list(allowed);
    if asked.is_empty() {
        return Err("a side needs a processor at least".into());
    }
    match asked.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => Err(format!("processor {cpu} may not be used here; these may: {list}")),
        None => Ok(()),
    }
}

fn ordered(cpus: &[usize]) -> Vec<usize> {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Returns the first processor on a core that is not taken, else the first that is not taken
/// itself, else the first of all.
fn pick(
    allowed: &[usize],
    taken: &[usize],
    siblings: &impl Fn(usize) -> Vec<usize>,
) -> Result<usize, String> {
    let free = |cpu: &&usize| !taken.contains(cpu);
    let apart = |cpu: &&usize| free(cpu) && !siblings(**cpu).iter().any(|s| taken.contains(s));
    let found = allowed.iter().find(apart).or_else(|| allowed.iter().find(free));
    found.or(allowed.first()).copied().ok_or_else(|| "no processor may be used here".into())
}

fn judge(
    server: &[usize],
    client: &[usize],
    siblings: &impl Fn(usize) -> Vec<usize>,
) -> Option<String> {
    if server.iter().any(|cpu| client.contains(cpu)) {
        return Some(
            "The server and the client share a processor: each takes time from the other, so \
             figures are of the two together."
                .into(),
        );
    }
    let together = server.iter().any(|&cpu| siblings(cpu).iter().any(|s| client.contains(s)));
    together.then(|| {
        "The server's and the client's processors are threads of one core: each slows the other \
         down."
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(cpu: usize) -> Vec<usize> {
        vec![cpu]
    }

    #[test]
    fn a_list_is_read_as_it_is_written() {
        assert_eq!(parse_list("0,2-4,7\n").unwrap(), [0, 2, 3, 4, 7]);
        assert_eq!(format_list(&[0, 2, 3, 4, 7]), "0,2-4,7");
        assert_eq!(format_list(&[]), "");
        for wrong in ["", "a", "3-1", "1,", "1-", "-1", "99999"] {
            assert!(parse_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mask_has_a_comma_before_each_32_bits() {
        assert_eq!(format_mask(&[0]), "00000001");
        assert_eq!(format_mask(&[1, 3]), "0000000a");
        assert_eq!(format_mask(&[0, 33]), "00000002,00000001");
        assert_eq!(format_mask(&[64]), "00000001,00000000,00000000");
    }

    #[test]
    fn each_side_gets_one_of_the_first_two() {
        let choice = choose(None, None, &[2, 5, 6], alone).unwrap();
        assert_eq!((choice.server, choice.client), (vec![2], vec![5]));
        assert!(choice.warnings.is_empty());
    }

    #[test]
    fn threads_of_one_core_are_parted_where_there_is_another_core() {
        let pairs = |cpu: usize| vec![cpu & !1, cpu | 1];
        let choice = choose(None, None, &[0, 1, 2, 3], pairs).unwrap();
        assert_eq!((choice.server, choice.client), (vec![0], vec![2]));
        assert!(choice.warnings.is_empty());
        let choice = choose(None, None, &[0, 1], pairs).unwrap();
        assert_eq!((choice.server, choice.client), (vec![0], vec![1]));
        assert!(choice.warnings[0].contains("one core"));
    }

    #[test]
    fn one_processor_is_shared_with_a_warning() {
        let choice = choose(None, None, &[3], alone).unwrap();
        assert_eq!((choice.server, choice.client), (vec![3], vec![3]));
        assert!(choice.warnings[0].contains("share"));
    }

    #[test]
    fn requested_processors_are_given_and_the_other_side_avoids_them() {
        let choice = choose(None, Some(&[0]), &[0, 1], alone).unwrap();
        assert_eq!((choice.server, choice.client), (vec![1], vec![0]));
        let choice = choose(Some(&[1, 0]), Some(&[2]), &[0, 1, 2], alone).unwrap();
        assert_eq!((choice.server, choice.client), (vec![0, 1], vec![2]));
        let error = choose(Some(&[7]), None, &[0, 1], alone).unwrap_err();
        assert!(error.contains("processor 7"));
        assert!(choose(Some(&[]), None, &[0, 1], alone).is_err());
    }
}
