//! Irregular forms of English words, which stemming leaves apart.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Base forms, each with its irregular forms.
const FORMS: &str = "\
bad worse worst|bear borne|beat beaten|become became|begin began begun|bend bent|bind bound|bite bit bitten|\
bleed bled|blow blew blown|break broke broken|breed bred|bring brought|build built|burn burnt|buy bought|catch caught|\
child children|choose chose chosen|cling clung|come came|creep crept|deal dealt|dig dug|draw drew drawn|dream dreamt|\
drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen|feed fed|feel felt|fight fought|find found|\
flee fled|fly flew flown|foot feet|forbid forbade forbidden|forget forgot forgotten|forgive forgave forgiven|\
freeze froze frozen|get got gotten|give gave given|go goes going gone went|good better best|goose geese|grind ground|\
grow grew grown|hang hung|hear heard|hide hid hidden|hold held|keep kept|kneel knelt|know knew known|lay laid|\
lead led|lean leant|leap leapt|learn learnt|leave left|lend lent|life lives|light lit|lose lost|make made|man men|\
mean meant|meet met|mouse mice|pay paid|person people|ride rode ridden|ring rang rung|rise rose risen|run ran|\
say said|see saw seen|seek sought|sell sold|send sent|sew sewn|shake shook shaken|shine shone|shoot shot|\
show shown|shrink shrank shrunk|sing sang sung|sink sank sunk|sit sat|sleep slept|slide slid|sling slung|speak spoke spoken|\
speed sped|spend spent|spin spun|spit spat|spring sprang sprung|stand stood|steal stole stolen|stick stuck|\
sting stung|strike struck|strive strove striven|swear swore sworn|sweep swept|swim swam swum|swing swung|\
take took taken|teach taught|tear tore torn|tell told|think thought|throw threw thrown|tooth teeth|\
understand understood|wake woke woken|wear wore worn|weave wove woven|weep wept|wife wives|win won|woman women|\
write wrote written";

static BASE_FORMS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let mut forms = HashMap::new();
    for group in FORMS.split('|') {
        let mut words = group.split(' ');
        if let Some(base) = words.next() {
            forms.extend(words.map(|form| (form, base)));
        }
    }
    forms
});

/// The base form of an irregular form in lower case.
pub fn base_form(word: &str) -> Option<&'static str> {
    BASE_FORMS.get(word).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_one_base_form() {
        assert_eq!(base_form("went"), Some("go"));
        assert_eq!(base_form("written"), Some("write"));
        assert_eq!(base_form("bee"), None);
        let forms: usize = FORMS.split('|').map(|group| group.split(' ').count() - 1).sum();
        assert_eq!(BASE_FORMS.len(), forms, "no form stands twice");
        assert!(BASE_FORMS.values().all(|base| !BASE_FORMS.contains_key(base)));
    }
}
