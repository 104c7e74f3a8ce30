//! The choice of exported traces. A trace is exported as a whole, because the choice depends only on its id and its origin.

/// The sampler that `OTEL_TRACES_SAMPLER` names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// The exported share of the traces that begin here, from 0 to 1.
    ratio: f64,
    /// All traces of submitters are exported. A batch keeps a submitter's trace only if the submitter samples it.
    follows_parent: bool,
}

impl Default for Sampler {
    /// The sampler that exports all traces.
    fn default() -> Self {
        Sampler {
            ratio: 1.0,
            follows_parent: true,
        }
    }
}

impl Sampler {
    /// Reads the name and the argument of a sampler. The error text is a remedy.
    pub fn read(name: Option<&str>, argument: Option<&str>) -> Result<Sampler, String> {
        let Some(name) = name else {
            return Ok(Sampler::default());
        };
        let (follows_parent, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name),
        };
        let ratio = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => {
                let read = argument.unwrap_or("1").parse::<f64>();
                read.ok()
                    .filter(|ratio| (0.0..=1.0).contains(ratio))
                    .ok_or("give OTEL_TRACES_SAMPLER_ARG a share from 0 to 1; all traces are exported")?
            }
            _ => {
                let remedy = "give always_on, always_off, traceidratio, or one of them with parentbased_ in front; all \
                              traces are exported";
                return Err(remedy.to_owned());
            }
        };
        Ok(Sampler {
            ratio,
            follows_parent,
        })
    }

    /// Reports whether a trace is exported. `is_remote` means that a submitter began it.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a share that is off by 2^-53 does not matter"
    )]
    pub fn takes(&self, trace_id: u128, is_remote: bool) -> bool {
        if self.follows_parent && is_remote {
            return true;
        }
        // Every version of the specification makes the lower half of the id random.
        let place = (trace_id as u64 >> 1) as f64 / (u64::MAX >> 1) as f64;
        self.ratio >= 1.0 || place < self.ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_sampled_by_their_id_and_origin() {
        let sampler = |name, argument| Sampler::read(Some(name), argument).unwrap();
        let share = |sampler: Sampler, is_remote| {
            let ids = (0..1_000u128).map(|n| n * (u128::from(u64::MAX) / 1_000));
            ids.filter(|id| sampler.takes(*id, is_remote)).count()
        };
        assert_eq!(share(Sampler::default(), false), 1_000);
        assert_eq!(share(sampler("always_off", None), true), 0);
        let tenth = sampler("parentbased_traceidratio", Some("0.1"));
        assert!(
            (90..=110).contains(&share(tenth, false)),
            "{}",
            share(tenth, false)
        );
        assert_eq!(share(tenth, true), 1_000);
        let tenth = sampler("traceidratio", Some("0.1"));
        assert!((90..=110).contains(&share(tenth, true)));
        assert_eq!(share(sampler("parentbased_always_off", None), false), 0);
        assert!(Sampler::read(Some("traceidratio"), Some("2")).is_err());
        assert!(Sampler::read(Some("parentbased_xray"), None).is_err());
    }
}
