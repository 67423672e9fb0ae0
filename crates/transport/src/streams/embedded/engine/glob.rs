//! Glob patterns over bytes: `*`, `?`, `[a-z]`, `[^a]` and `\` before a byte that stands for itself.

/// Whether a pattern matches all of a text. Takes at most pattern × text steps.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // Where to go on after the last star: the pattern behind it, and the text it hasn't eaten yet.
    let mut back: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            back = Some((rest, text));
            pattern = rest;
            continue;
        }
        if let Some((&byte, rest_text)) = text.split_first() {
            if let Some(rest) = one(pattern, byte) {
                pattern = rest;
                text = rest_text;
                continue;
            }
        } else if pattern.is_empty() {
            return true;
        }
        match back {
            Some((after, eaten)) => match eaten.split_first() {
                Some((_, rest)) => {
                    back = Some((after, rest));
                    pattern = after;
                    text = rest;
                }
                None => return false,
            },
            None => return false,
        }
    }
}

/// What is left of the pattern when its first element takes this byte.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'\\', literal, rest @ ..] => (*literal == byte).then_some(rest),
        [b'[', rest @ ..] => class(rest, byte),
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
    }
}

fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    let mut hit = false;
    loop {
        match rest {
            // A class that isn't closed ends with the pattern.
            [] => break,
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [b'\\', literal, after @ ..] => {
                hit |= *literal == byte;
                rest = after;
            }
            [low, b'-', high, after @ ..] => {
                let (low, high) = if low <= high {
                    (low, high)
                } else {
                    (high, low)
                };
                hit |= (*low..=*high).contains(&byte);
                rest = after;
            }
            [literal, after @ ..] => {
                hit |= *literal == byte;
                rest = after;
            }
        }
    }
    (hit != negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_clients_of_the_protocol_expect() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbb", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*:gnode:unified:*", "a:gnode:unified:production", true),
            ("**a", "bba", true),
            ("", "", true),
            ("", "a", false),
            ("[", "a", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} on {text}"
            );
        }
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = "a*".repeat(50) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(2000).as_bytes()));
    }
}
