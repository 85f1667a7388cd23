//! Parses texts of objects: times as Kubernetes writes them, numbers in annotations, bytes in base64.

/// Parses a whole number that consists of digits only.
pub fn parse_number(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits {
        text.parse().ok()
    } else {
        None
    }
}

/// Returns the seconds since 1970 of a time in RFC 3339, such as `2026-11-22T13:00:00Z`, without fractions.
pub fn parse_time(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to).and_then(parse_number);
    let mark = |at: usize, choices: &str| text.get(at..at + 1).filter(|found| choices.contains(found));
    mark(4, "-").and(mark(7, "-")).and(mark(10, "Tt ")).and(mark(13, ":")).and(mark(16, ":"))?;
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let possible = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    let mut rest = &text[19..];
    if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(seconds - offset(rest)?).filter(|_| possible)
}

/// Decodes base64, the format of values of Secrets and of binaryData.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut groups = text.as_bytes().chunks(4).peekable();
    while let Some(group) = groups.next() {
        // Padding is valid only at the end.
        let padding = match (group.len(), groups.peek().is_none(), group) {
            (4, true, [.., b'=', b'=']) => 2,
            (4, true, [.., b'=']) => 1,
            (4, _, _) => 0,
            _ => return None,
        };
        let digits = group[..4 - padding].iter().map(|digit| sextet(*digit));
        let bits = digits.into_iter().try_fold(0, |bits, digit| digit.map(|digit| bits << 6 | digit))? << (6 * padding);
        if bits & ((1 << (8 * padding)) - 1) != 0 {
            return None; // unused bits that are not zero
        }
        bytes.extend_from_slice(&u32::to_be_bytes(bits)[1..4 - padding]);
    }
    Some(bytes)
}

fn sextet(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

/// Returns the offset of a time zone in seconds: `Z`, `+01:00`.
fn offset(text: &str) -> Option<i64> {
    if text == "Z" || text == "z" {
        return Some(0);
    }
    let sign = match text.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = (parse_number(text.get(1..3)?)?, parse_number(text.get(4..)?)?);
    let well_formed = text.len() == 6 && text.get(3..4) == Some(":") && hours < 24 && minutes < 60;
    Some(sign * (hours * 3600 + minutes * 60)).filter(|_| well_formed)
}

/// Returns the days since 1970 in the Gregorian calendar. The year starts in March, so that the leap day is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_kubernetes_writes_them() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-11-22T13:00:00.123456Z", 1_795_352_400),
            ("2026-11-22T14:30:00+01:30", 1_795_352_400),
            ("1969-12-31T23:00:00-01:00", 0),
        ] {
            assert_eq!(parse_time(text), Some(seconds), "{}", text);
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["", "2026-11-22", "2026-13-01T00:00:00Z", "2026-11-22T13:00:00", "2026-11-22T13:00:00+0100", "x"] {
            assert_eq!(parse_time(text), None, "{}", text);
        }
    }

    #[test]
    fn base64_is_decoded_and_nothing_else() {
        for (text, bytes) in [("", &b""[..]), ("aGVsbG8=", b"hello"), ("AP+/", b"\x00\xff\xbf"), ("AA==", b"\0")] {
            assert_eq!(decode_base64(text).as_deref(), Some(bytes), "{}", text);
        }
        for text in ["a", "aGVsbG8", "AA=A", "====", "AB==", "AA==AA==", "A A=", "aGVs\n"] {
            assert_eq!(decode_base64(text), None, "{}", text);
        }
    }

    #[test]
    fn numbers_are_digits_alone() {
        assert_eq!(parse_number("007"), Some(7));
        for text in ["", "+1", "-1", " 1", "1.0", "99999999999999999999"] {
            assert_eq!(parse_number(text), None, "{}", text);
        }
    }
}
