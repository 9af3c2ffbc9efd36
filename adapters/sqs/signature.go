package sqs

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// A request is signed with Signature Version 4. The signature is verified by signing the request again, with the signer
// of the official SDK, and comparing: the header fields that the client has signed, its time, and the digest of the body.

const (
	algorithm = "AWS4-HMAC-SHA256"
	skewMax   = 15 * time.Minute // between the clocks of client and gateway
	amzDate   = "20060102T150405Z"
)

// authorization is the header Authorization of a signed request.
type authorization struct {
	keyID, date, region, service string
	signed                       []string // names of header fields, in lower case
	signature                    string
}

// parseAuthorization parses a header Authorization.
func parseAuthorization(header string) (a authorization, err error) {
	kind, fields, _ := strings.Cut(header, " ")
	if kind != algorithm {
		return a, incompleteSignature.of("Authorization must be of the kind %s", algorithm)
	}
	for field := range strings.SplitSeq(fields, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "Credential":
			scope := strings.Split(value, "/")
			if len(scope) != 5 || scope[4] != "aws4_request" {
				return a, incompleteSignature.of("Credential must be <key>/<date>/<region>/sqs/aws4_request")
			}
			a.keyID, a.date, a.region, a.service = scope[0], scope[1], scope[2], scope[3]
		case "SignedHeaders":
			a.signed = strings.Split(value, ";")
		case "Signature":
			a.signature = value
		}
	}
	if a.keyID == "" || len(a.signed) == 0 || a.signature == "" {
		return a, incompleteSignature.of("Authorization needs Credential, SignedHeaders and Signature")
	}
	return a, nil
}

// authenticate returns the access key that has signed a request with this body.
func (f *keyFile) authenticate(r *http.Request, body []byte, now time.Time) (AccessKey, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return AccessKey{}, missingToken.of("the request is not signed: it needs the header Authorization")
	}
	a, err := parseAuthorization(header)
	if err != nil {
		return AccessKey{}, err
	}
	k, known := f.find(a.keyID, now)
	if !known {
		return AccessKey{}, invalidToken.of("the access key id is not known")
	}
	at, err := time.Parse(amzDate, r.Header.Get("X-Amz-Date"))
	if err != nil {
		return AccessKey{}, incompleteSignature.of("X-Amz-Date must be a time such as 20261128T120000Z")
	}
	if at.Before(now.Add(-skewMax)) || at.After(now.Add(skewMax)) {
		return AccessKey{}, signatureDoesNotMatch.of("Signature expired: %s is not within %v of the gateway's %s", at.Format(amzDate), skewMax, now.UTC().Format(amzDate))
	}
	want, err := f.sign(r, body, a, k.Secret, at)
	if err != nil || subtle.ConstantTimeCompare([]byte(want), []byte(a.signature)) != 1 {
		return AccessKey{}, signatureDoesNotMatch.of("the signature does not match: check the secret access key and how the request is signed")
	}
	return k, nil
}

// sign returns the signature that a request with what a has signed must have.
func (f *keyFile) sign(r *http.Request, body []byte, a authorization, secret string, at time.Time) (string, error) {
	again := r.Clone(r.Context())
	again.Header = http.Header{}
	again.ContentLength = 0
	host, dated := false, false
	for _, name := range a.signed {
		switch name {
		case "host":
			host = true
		case "content-length":
			again.ContentLength = int64(len(body))
		default:
			dated = dated || name == "x-amz-date"
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	if !host || !dated {
		return "", incompleteSignature.of("host and x-amz-date must be signed")
	}
	sum := sha256.Sum256(body)
	digest := hex.EncodeToString(sum[:])
	if given := r.Header.Get("X-Amz-Content-Sha256"); given != "" && given != digest {
		return "", signatureDoesNotMatch.of("X-Amz-Content-Sha256 is not that of the body")
	}
	again.URL.Host = r.Host
	creds := aws.Credentials{AccessKeyID: a.keyID, SecretAccessKey: secret, SessionToken: r.Header.Get("X-Amz-Security-Token")}
	if err := f.signer.SignHTTP(r.Context(), creds, again, digest, a.service, a.region, at); err != nil {
		return "", err
	}
	made, err := parseAuthorization(again.Header.Get("Authorization"))
	if err != nil || strings.Join(made.signed, ";") != strings.Join(a.signed, ";") || made.date != a.date {
		return "", signatureDoesNotMatch.of("the signed headers %s are not supported", strconv.Quote(strings.Join(a.signed, ";")))
	}
	return made.signature, nil
}
