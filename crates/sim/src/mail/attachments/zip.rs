//! ZIP archives with stored (uncompressed) members.

use super::checksum::crc32;

#[derive(Debug, Default)]
pub struct ZipArchive {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    members: u16,
}

impl ZipArchive {
    pub fn add(&mut self, name: &str, content: &[u8]) {
        let offset = self.bytes.len() as u32;
        let common = common_fields(name, content);
        self.bytes.extend_from_slice(b"PK\x03\x04");
        self.bytes.extend_from_slice(&common);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(content);

        self.directory.extend_from_slice(b"PK\x01\x02");
        self.directory.extend_from_slice(&20_u16.to_le_bytes()); // made by: version 2.0
        self.directory.extend_from_slice(&common);
        self.directory.extend_from_slice(&[0; 10]); // comment, disk, attributes
        self.directory.extend_from_slice(&offset.to_le_bytes());
        self.directory.extend_from_slice(name.as_bytes());
        self.members += 1;
    }

    /// Returns the size of the finished archive so far, its directory included.
    pub fn size(&self) -> usize {
        self.bytes.len() + self.directory.len() + 22
    }

    pub fn finish(mut self) -> Vec<u8> {
        let offset = self.bytes.len() as u32;
        let length = self.directory.len() as u32;
        self.bytes.append(&mut self.directory);
        self.bytes.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        self.bytes.extend_from_slice(&self.members.to_le_bytes());
        self.bytes.extend_from_slice(&self.members.to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&offset.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 2]); // no comment
        self.bytes
    }
}

/// Builds the fields that a member's local header and its directory entry share.
fn common_fields(name: &str, content: &[u8]) -> Vec<u8> {
    // 2024-01-01 00:00 in DOS form. Fixed, so that equal content makes equal archives.
    const TIME: u16 = 0;
    const DATE: u16 = (2024 - 1980) << 9 | 1 << 5 | 1;
    let mut fields = Vec::with_capacity(26);
    for word in [20, 0, 0, TIME, DATE] {
        fields.extend_from_slice(&u16::to_le_bytes(word)); // version, flags, stored
    }
    fields.extend_from_slice(&crc32(content).to_le_bytes());
    fields.extend_from_slice(&(content.len() as u32).to_le_bytes());
    fields.extend_from_slice(&(content.len() as u32).to_le_bytes());
    fields.extend_from_slice(&(name.len() as u16).to_le_bytes());
    fields.extend_from_slice(&[0; 2]); // no extra field
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zip_directory_leads_to_each_member() {
        let mut archive = ZipArchive::default();
        archive.add("a.txt", b"alpha");
        archive.add("b.txt", b"beta");
        let size = archive.size();

        let bytes = archive.finish();

        assert_eq!(bytes.len(), size);
        let end = &bytes[bytes.len() - 22..];
        assert_eq!(&end[..4], b"PK\x05\x06");
        let directory = u32::from_le_bytes(end[16..20].try_into().unwrap()) as usize;
        assert_eq!(&bytes[directory..directory + 4], b"PK\x01\x02");
        assert_eq!(bytes[directory + 16..directory + 20], crc32(b"alpha").to_le_bytes());
        let second = directory + 46 + 5;
        let local = u32::from_le_bytes(bytes[second + 42..second + 46].try_into().unwrap()) as usize;
        assert_eq!(&bytes[local..local + 4], b"PK\x03\x04");
        assert_eq!(&bytes[local + 30..local + 39], b"b.txtbeta");
    }
}
