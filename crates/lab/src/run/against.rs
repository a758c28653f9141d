//! Comparison with another build of weir: each weir server of an experiment gets a copy that runs
//! the other build, measured in the same rounds.

use crate::experiment::{Experiment, ServerSpec};

/// Name of the other build among the programs.
pub(super) const AGAINST: &str = "weir, against";

/// Suffix of the copies' ids, labels and columns.
const SUFFIX: &str = "against";

/// Adds the copies, each wherever its original is measured or named.
pub(super) fn add_copies(experiment: &mut Experiment) {
    let originals = std::mem::take(&mut experiment.server);
    for original in originals {
        let copy = original.weir().map(|_| copy_of(&original));
        experiment.server.extend([Some(original), copy].into_iter().flatten());
    }
    let named = experiment.sweep.iter_mut().map(|sweep| &mut sweep.servers);
    let named = named.chain(experiment.figure.iter_mut().map(|figure| &mut figure.servers));
    let named = named.chain(experiment.timeline.iter_mut().map(|figure| &mut figure.servers));
    let named = named.chain(experiment.scatter.iter_mut().map(|figure| &mut figure.servers));
    let named = named.chain(experiment.table.iter_mut().map(|table| &mut table.servers));
    for ids in named {
        let copies = ids.iter().map(|id| id_of(id)).filter(|copy| {
            experiment.server.iter().any(|server| server.against && server.id == *copy)
        });
        let copies: Vec<String> = copies.collect();
        ids.extend(copies);
    }
}

fn copy_of(original: &ServerSpec) -> ServerSpec {
    let column = match (&original.row, original.column.as_str()) {
        (None, column) => column.to_owned(),
        (Some(_), "") => SUFFIX.to_owned(),
        (Some(_), column) => format!("{column}, {SUFFIX}"),
    };
    ServerSpec {
        id: id_of(&original.id),
        label: format!("{}, {SUFFIX}", original.label),
        column,
        against: true,
        ..original.clone()
    }
}

fn id_of(original: &str) -> String {
    format!("{original}+{SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::one_weir;

    const TEXT: &str = one_weir!(
        r#"
row = "weir"
[[server]]
id = "two"
label = "nginx"
kind = "nginx"
[[sweep]]
id = "up"
x = "rate"
values = [5]
servers = ["one", "two"]
[[table]]
id = "t"
title = "T"
sweep = "up"
servers = ["two"]
columns = ["reply_rate"]
[[sweep]]
id = "day"
x = "rate"
values = [5]
day = {}
load = { workload = "day", warmup-s = 0 }
servers = ["one"]
[[scatter]]
id = "s"
title = "S"
sweep = "day"
servers = ["one"]
"#
    );

    #[test]
    fn each_weir_has_a_copy_wherever_it_is_measured() {
        let mut experiment = Experiment::parse(TEXT).unwrap();
        add_copies(&mut experiment);
        let servers: Vec<_> = experiment.server.iter().map(|one| (&*one.id, one.against)).collect();
        assert_eq!(servers, [("one", false), ("one+against", true), ("two", false)]);
        assert_eq!(experiment.server[1].column, "against");
        assert_eq!(experiment.sweep[0].servers, ["one", "two", "one+against"]);
        assert_eq!(experiment.table[0].servers, ["two"]);
        assert_eq!(experiment.scatter[0].servers, ["one", "one+against"]);
    }
}
