//! Splits a query into terms: `[-][operator:](word | "phrase")[*]`. Any text is valid here.

/// The operators whose value may follow a space, as in `from: alice`.
const OPERATORS: [&str; 9] = ["subject", "from", "to", "filename", "has", "is", "label", "after", "before"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryTerm<'a> {
    pub is_negated: bool,
    /// Empty, or one of the operators in any case.
    pub operator: &'a str,
    pub value: &'a str,
    pub is_prefix: bool,
}

/// Returns the terms of `text` in order.
pub fn terms(text: &str) -> impl Iterator<Item = QueryTerm<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let is_negated = rest.starts_with('-');
        rest = &rest[usize::from(is_negated)..];
        let operator = take_operator(&mut rest);
        let (value, is_prefix) = take_value(&mut rest);
        let is_end = operator.is_empty() && value.is_empty() && rest.is_empty();
        (!is_end).then_some(QueryTerm { is_negated, operator, value, is_prefix })
    })
    .filter(|term| !term.value.is_empty())
}

fn take_operator<'a>(rest: &mut &'a str) -> &'a str {
    let Some(operator) = operator_at(rest) else { return "" };
    *rest = &rest[operator.len() + 1..];
    if rest.starts_with(char::is_whitespace) && operator_at(rest.trim_start()).is_none() {
        *rest = rest.trim_start();
    }
    operator
}

fn operator_at(text: &str) -> Option<&str> {
    let name = &text[..text.bytes().take(10).position(|b| b == b':')?];
    OPERATORS.iter().any(|operator| operator.eq_ignore_ascii_case(name)).then_some(name)
}

/// Takes a quoted text without its quotes, or all up to the next space or quote; returns it and whether a star ends it.
fn take_value<'a>(rest: &mut &'a str) -> (&'a str, bool) {
    let quoted = rest.strip_prefix(is_quote);
    let inner = quoted.unwrap_or(rest);
    let end = inner.find(|c| is_quote(c) || (quoted.is_none() && c.is_whitespace())).unwrap_or(inner.len());
    let mut value = &inner[..end];
    *rest = &inner[end..];
    if quoted.is_some() {
        *rest = rest.strip_prefix(is_quote).unwrap_or(rest);
    }
    let mut is_prefix = value.ends_with('*');
    value = value.trim_end_matches('*');
    if quoted.is_some() && rest.starts_with('*') {
        *rest = &rest[1..];
        is_prefix = true;
    }
    (value, is_prefix)
}

/// Phones type curly quotes.
fn is_quote(c: char) -> bool {
    matches!(c, '"' | '“' | '”' | '„')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(&str, &str)> {
        terms(text).map(|term| (term.operator, term.value)).collect()
    }

    #[test]
    fn an_unbalanced_quote_runs_to_the_end() {
        assert_eq!(values("a \"b c"), [("", "a"), ("", "b c")]);
        assert_eq!(values("a\"b c\"d"), [("", "a"), ("", "b c"), ("", "d")]);
    }

    #[test]
    fn an_operator_without_a_value_takes_no_other_term() {
        assert_eq!(values("from: to:bob"), [("to", "bob")]);
        assert_eq!(values("from: bob"), [("from", "bob")]);
        assert_eq!(values("from:"), []);
    }
}
