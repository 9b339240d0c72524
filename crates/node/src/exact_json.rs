//! JSON for programs that keep numbers in floating point, such as jq and JavaScript: an integer that
//! these would change is a string, as in protobuf's mapping.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The largest integer that such a reader keeps as it is.
const MAX_EXACT: u64 = (1 << 53) - 1;

/// Returns a value as one line, without its end.
///
/// # Errors
///
/// If the value has no form in JSON, such as a map with keys that are no strings.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(exact(value)?.to_string())
}

/// Returns a value as lines for people too, for a file.
///
/// # Errors
///
/// As [`line()`].
pub fn pretty(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&exact(value)?)
}

/// Reads what [`line()`] or [`pretty`] wrote.
///
/// # Errors
///
/// If the text is no JSON, or has another form than the type.
pub fn read<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let mut value = serde_json::from_str(text)?;
    change(&mut value, &|value| match value {
        Value::String(text) => {
            let number = (text.parse::<u64>().map(Value::from))
                .or_else(|_| text.parse::<i64>().map(Value::from));
            // Only what was a number: no label, and no number with another form.
            let number = number.ok().filter(is_changed_by_floating_point);
            number.filter(|number| number.to_string().as_str() == text)
        }
        _ => None,
    });
    serde_json::from_value(value)
}

fn exact(value: &impl Serialize) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(value)?;
    change(&mut value, &|value| {
        is_changed_by_floating_point(value).then(|| Value::String(value.to_string()))
    });
    Ok(value)
}

fn is_changed_by_floating_point(value: &Value) -> bool {
    let size = value.as_u64().or(value.as_i64().map(i64::unsigned_abs));
    size.is_some_and(|size| size > MAX_EXACT)
}

fn change(value: &mut Value, new: &impl Fn(&Value) -> Option<Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| change(item, new)),
        Value::Object(fields) => fields.values_mut().for_each(|field| change(field, new)),
        _ => {
            if let Some(new) = new(value) {
                *value = new;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_that_floating_point_would_change_are_strings() {
        let largest = MAX_EXACT;
        let value = json!({
            "mtu": u64::MAX, "list": [largest, largest + 1, -5, i64::MIN], "rate": 1e300, "text": "7",
        });
        let expected = json!({
            "mtu": "18446744073709551615",
            "list": [largest, "9007199254740992", -5, "-9223372036854775808"],
            "rate": 1e300,
            "text": "7",
        });
        for text in [line(&value).unwrap(), pretty(&value).unwrap()] {
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(
            big in any::<u64>(), signed in any::<i64>(), small in any::<u32>(), eighths in any::<i32>(),
            label in "[a-z0-9.+-]{0,8}",
        ) {
            type All = (u64, i64, u32, f64, String, Option<u64>);
            let value: All = (big, signed, small, f64::from(eighths) / 8.0, label, Some(big));
            let text = pretty(&value).unwrap();
            prop_assert_eq!(read::<All>(&text).unwrap(), value);
        }
    }
}
