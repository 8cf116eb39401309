//! The `Prefer` header and `Preference-Applied`.

/// Preferences of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefer {
    /// Whether ids are immutable: they stay when a message moves.
    pub is_immutable: bool,
    pub page_size: Option<usize>,
    pub is_text_body: bool,
    pub is_minimal: bool,
}

impl Prefer {
    /// Parses the header. An unknown preference is an error.
    pub fn read(header: &str) -> Result<Self, String> {
        let mut prefer = Self::default();
        for part in header.split([',', ';']).map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim().trim_matches('"');
            match (name.trim().to_ascii_lowercase().as_str(), value) {
                ("idtype", "ImmutableId") => prefer.is_immutable = true,
                ("odata.maxpagesize", size) => {
                    let size = size.parse().ok().filter(|size| *size > 0);
                    prefer.page_size = Some(size.ok_or_else(|| format!("odata.maxpagesize is {value:?}"))?);
                }
                ("outlook.body-content-type", "text") => prefer.is_text_body = true,
                ("outlook.body-content-type", "html") => prefer.is_text_body = false,
                ("return", "minimal") => prefer.is_minimal = true,
                _ => return Err(format!("unknown preference {part:?}")),
            }
        }
        Ok(prefer)
    }

    /// Renders `Preference-Applied`.
    pub fn applied(&self) -> Option<String> {
        let mut applied = Vec::new();
        if self.is_immutable {
            applied.push("IdType=\"ImmutableId\"".to_owned());
        }
        applied.extend(self.page_size.map(|size| format!("odata.maxpagesize={size}")));
        if self.is_text_body {
            applied.push("outlook.body-content-type=\"text\"".to_owned());
        }
        (!applied.is_empty()).then(|| applied.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_holds_several_preferences() {
        let read =
            Prefer::read("IdType=\"ImmutableId\", odata.maxpagesize=50,outlook.body-content-type=\"text\"").unwrap();

        assert_eq!(read, Prefer { is_immutable: true, page_size: Some(50), is_text_body: true, is_minimal: false });
        assert_eq!(read.applied().unwrap().matches(", ").count(), 2);
        assert_eq!(Prefer::read(""), Ok(Prefer::default()));
        assert_eq!(Prefer::default().applied(), None);
    }

    #[test]
    fn unknown_preference_is_refused() {
        for header in ["IdType=\"immutableid\"", "odata.maxpagesize=0", "odata.pagesize=5", "outlook.timezone=\"UTC\""]
        {
            assert!(Prefer::read(header).is_err(), "{header}");
        }
    }
}
