//! A certificate authority that lives as long as a test.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Where the files lie that a TLS server and its clients need.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificates {
    /// Makes an authority, and a certificate for this machine's loopback names signed by it.
    pub(crate) fn make(folder: &Path) -> Certificates {
        let authority_key = KeyPair::generate().expect("a key pair");
        let mut authority = CertificateParams::new(Vec::new()).expect("no names are good names");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_certificate = authority
            .self_signed(&authority_key)
            .expect("a self-signed certificate");
        let issuer = Issuer::new(authority, authority_key);

        let server_key = KeyPair::generate().expect("a key pair");
        let server = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
            .and_then(|parameters| parameters.signed_by(&server_key, &issuer))
            .expect("a signed certificate");

        let files = Certificates {
            authority: folder.join("ca.pem"),
            certificate: folder.join("server.pem"),
            key: folder.join("server.key"),
        };
        for (path, text) in [
            (&files.authority, authority_certificate.pem()),
            (&files.certificate, server.pem()),
            (&files.key, server_key.serialize_pem()),
        ] {
            std::fs::write(path, text).expect("the temporary folder can be written");
        }
        files
    }
}
