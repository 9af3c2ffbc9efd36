package sqs

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/valyala/fasthttp"
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

// peek returns a field of the header of a request.
func peek(r *fasthttp.RequestCtx, name string) string { return string(r.Request.Header.Peek(name)) }

// authenticate returns the access key that has signed a request with this body.
func (f *keyFile) authenticate(r *fasthttp.RequestCtx, body []byte, now time.Time) (AccessKey, error) {
	header := peek(r, "Authorization")
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
	at, err := time.Parse(amzDate, peek(r, "X-Amz-Date"))
	if err != nil {
		return AccessKey{}, incompleteSignature.of("X-Amz-Date must be a time such as 20261128T120000Z")
	}
	if at.Before(now.Add(-skewMax)) || at.After(now.Add(skewMax)) {
		return AccessKey{}, signatureDoesNotMatch.of("Signature expired: %s is not within %v of the gateway's %s", at.Format(amzDate), skewMax, now.UTC().Format(amzDate))
	}
	want, err := f.sign(r, body, a, k.Secret, at)
	if refused, is := errors.AsType[*fault](err); is {
		return AccessKey{}, refused
	}
	if err != nil || subtle.ConstantTimeCompare([]byte(want), []byte(a.signature)) != 1 {
		return AccessKey{}, signatureDoesNotMatch.of("the signature does not match: check the secret access key and how the request is signed")
	}
	return k, nil
}

// sign returns the signature that a request with what a has signed must have.
func (f *keyFile) sign(r *fasthttp.RequestCtx, body []byte, a authorization, secret string, at time.Time) (string, error) {
	address, err := url.ParseRequestURI(string(r.RequestURI()))
	if err != nil {
		return "", err
	}
	address.Host = string(r.Request.Header.Host()) // as it was signed, r.Host is in lower case
	again := &http.Request{Method: string(r.Method()), URL: address, Host: address.Host, Header: http.Header{}}
	for _, name := range a.signed {
		switch name {
		case "host": // it is that of the address
		case "content-length":
			again.ContentLength = int64(len(body))
		default:
			for _, value := range r.Request.Header.PeekAll(name) {
				again.Header.Add(name, string(value))
			}
		}
	}
	for _, name := range []string{"host", "x-amz-date", "x-amz-target"} {
		if len(r.Request.Header.Peek(name)) > 0 && !slices.Contains(a.signed, name) {
			return "", incompleteSignature.of("%s must be signed", name)
		}
	}
	sum := sha256.Sum256(body)
	digest := hex.EncodeToString(sum[:])
	if given := peek(r, "X-Amz-Content-Sha256"); given != "" && given != digest {
		return "", signatureDoesNotMatch.of("X-Amz-Content-Sha256 is not that of the body")
	}
	creds := aws.Credentials{AccessKeyID: a.keyID, SecretAccessKey: secret, SessionToken: peek(r, "X-Amz-Security-Token")}
	if err := f.signer.SignHTTP(context.Background(), creds, again, digest, a.service, a.region, at); err != nil {
		return "", err
	}
	made, err := parseAuthorization(again.Header.Get("Authorization"))
	if err != nil || strings.Join(made.signed, ";") != strings.Join(a.signed, ";") || made.date != a.date {
		return "", signatureDoesNotMatch.of("the signed headers %s are not supported", strconv.Quote(strings.Join(a.signed, ";")))
	}
	return made.signature, nil
}
