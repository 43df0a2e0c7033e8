// Package s3 implements the store s3://bucket/prefix for AWS S3, MinIO, versitygw and other servers
// of the S3 protocol.
//
//	s3://bucket/prefix?endpoint=https://host:port&region=eu-central-1&profile=lab&anonymous=true
//
// All query options are optional. The default endpoint is AWS_ENDPOINT_URL_S3, then
// AWS_ENDPOINT_URL, then AWS. The default region is AWS_REGION, then AWS_DEFAULT_REGION, then
// us-east-1. If the server names another region, that one is used. Credentials are searched in this
// order: AWS_ACCESS_KEY_ID and related variables, web identity, the files of the profile, the role
// of a container or machine. Without credentials, requests are not signed. Percent escapes in the
// prefix are decoded as in any URL.
//
// store.HTTP implements reads, retries, waits and redaction. An object is read by signed range
// requests with If-Match.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

func init() {
	store.Register(
		"s3",
		func(rest string) (store.Store, error) { return Open(rest, store.HTTPOptions{}) },
	)
}

// Store is the part of a bucket below a prefix. Safe for concurrent use.
type Store struct {
	*store.HTTP
	bucket    *url.URL // contains no secret
	name      string   // of the bucket
	prefix    string   // prefix of keys: "" or "a/b/"
	aws       bool     // no endpoint was given
	region    atomic.Pointer[string]
	creds     *credentials.Credentials // nil: requests are not signed
	client    *http.Client             // requests credentials
	refreshed sync.Map                 // rejected credentials that were already renewed
	// credentials were found before, or the environment names a service that provides them
	expected atomic.Bool
	unsigned atomic.Bool // there are no credentials
}

// Open opens the store of the URI part after "s3://".
func Open(rest string, opt store.HTTPOptions) (_ *Store, err error) {
	name, prefix, query, err := store.SplitBucket(
		"s3",
		rest,
		"endpoint",
		"region",
		"profile",
		"anonymous",
	)
	if err != nil {
		return nil, err
	}
	defer robocache.LocateIn(&err, "dataset", "s3://"+name+"/"+prefix)
	endpoint := cmp.Or(
		query.Get("endpoint"),
		os.Getenv("AWS_ENDPOINT_URL_S3"),
		os.Getenv("AWS_ENDPOINT_URL"),
	)
	region := cmp.Or(
		query.Get("region"),
		os.Getenv("AWS_REGION"),
		os.Getenv("AWS_DEFAULT_REGION"),
		"us-east-1",
	)
	s := &Store{name: name, aws: endpoint == ""}
	s.region.Store(&region)
	switch {
	case s.aws:
		s.bucket = &url.URL{Scheme: "https", Host: s.regionHost(region), Path: "/"}
		if strings.Contains(name, ".") { // the certificate of AWS does not cover such a host name
			s.bucket.Path += name
		}
	default:
		if !strings.Contains(endpoint, "://") {
			endpoint = "https://" + endpoint
		}
		s.bucket, err = url.Parse(endpoint)
		if err != nil || s.bucket.Host == "" || s.bucket.User != nil {
			return nil, robocache.Misuse("open", nil, "the endpoint is not a URL").
				WithHint("endpoint=https://host:port")
		}
		s.bucket.RawQuery = ""
		s.bucket.Path = strings.TrimRight(s.bucket.Path, "/") + "/" + name
	}
	if query.Get("anonymous") != "true" {
		var hasService bool
		s.creds, s.client, hasService = credentialChain(query.Get("profile"), s.aws)
		s.expected.Store(hasService)
	}
	base := *s.bucket
	base.Path = strings.TrimRight(base.Path, "/") + "/" + prefix
	opt.URI = strings.TrimRight("s3://"+name+"/"+prefix, "/")
	opt.Sign = s.signRequest
	opt.Explain = s.explainError
	opt.Versions = s.List
	if prefix != "" {
		s.prefix = prefix + "/"
	}
	if s.HTTP, err = store.NewHTTP(base.String(), opt); err != nil {
		return nil, err
	}
	return s, nil
}

// regionHost returns the host of AWS for a region.
func (s *Store) regionHost(region string) string {
	domain := ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain += ".cn"
	}
	if strings.Contains(s.name, ".") {
		return "s3." + region + domain
	}
	return s.name + ".s3." + region + domain
}

// emptySHA is the SHA-256 of an empty body.
const emptySHA = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// signRequest signs a request for the current region.
func (s *Store) signRequest(r *http.Request) error {
	// The signature covers the escaped path. Escape "+" too, because some servers decode it as a
	// space.
	r.URL.RawPath = s3utils.EncodePath(r.URL.Path)
	region := *s.region.Load()
	if s.aws {
		r.URL.Host = s.regionHost(region)
		r.Host = r.URL.Host
	}
	if s.creds == nil || s.unsigned.Load() {
		return nil
	}
	v, err := s.creds.GetWithContext(
		&credentials.CredContext{Client: s.client, Context: r.Context()},
	)
	if err != nil || v.AccessKeyID == "" {
		// A short failure of a service must not look like missing credentials.
		if s.expected.Load() {
			return robocache.Temporary(
				"open",
				nil,
				"the service that provides credentials gave none",
			).
				WithHint("check the role, its token and the service's address")
		}
		if r.Context().Err() == nil {
			s.unsigned.Store(true) // do not search again for each request
		}
		return nil
	}
	s.expected.Store(true)
	if r.Header.Get("X-Amz-Content-Sha256") == "" {
		r.Header.Set("X-Amz-Content-Sha256", emptySHA)
	}
	signer.SignV4(*r, v.AccessKeyID, v.SecretAccessKey, v.SessionToken, region)
	return nil
}

// explainError adds the error code of a response to e. It reports whether a retry may succeed,
// after it corrected the region or renewed the credentials.
func (s *Store) explainError(r *http.Response, body []byte, e *robocache.Error) (again bool) {
	var parsed struct{ Code, Region string }
	_ = xml.Unmarshal(body, &parsed) // the error page of a proxy is no XML and has no code
	if parsed.Code != "" && len(parsed.Code) < 64 {
		e.Got = parsed.Code
		e.Want = "the request to be accepted"
	}
	// AWS answers a request for another region with a redirect (301, 307), 400 or 403.
	mayBeRegion := r.StatusCode < http.StatusNotFound || parsed.Code == "PermanentRedirect"
	region := cmp.Or(r.Header.Get("X-Amz-Bucket-Region"), parsed.Region)
	isOther := region != "" && region != *s.region.Load() && isPlainRegion(region)
	if mayBeRegion && isOther {
		s.region.Store(&region)
		return true
	}
	switch parsed.Code {
	case "RequestTimeout",
		"SlowDown",
		"InternalError",
		"ConditionalRequestConflict",
		"OperationAborted":
		e.Class = robocache.ErrTemporary
		return true
	case "RequestTimeTooSkewed":
		e.Hint = "the clock of this machine is wrong"
	case "NoSuchBucket":
		e.Hint = "check the bucket's name and the endpoint"
	}
	denied := []int{http.StatusUnauthorized, http.StatusForbidden}
	expired := []string{"ExpiredToken", "InvalidToken"}
	if !slices.Contains(denied, r.StatusCode) && !slices.Contains(expired, parsed.Code) {
		return false
	}
	e.Class = robocache.ErrMisuse
	e.Hint = "the credentials are missing, wrong or expired, or do not allow this"
	if s.creds == nil || s.unsigned.Load() {
		e.Hint = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
			"or AWS_PROFILE"
		return false
	}
	switch parsed.Code {
	case "ExpiredToken":
		e.Class = robocache.ErrTemporary
		fallthrough
	case "InvalidToken", "InvalidAccessKeyId", "TokenRefreshRequired":
		// A server forgets temporary keys some time after they expire, and then reports unknown
		// keys.
		s.Expired(e)
	}
	return s.renewCredentials()
}

// renewCredentials requests new credentials, once for each rejected pair. It reports whether they
// changed.
func (s *Store) renewCredentials() bool {
	cc := &credentials.CredContext{Client: s.client}
	old, err := s.creds.GetWithContext(cc)
	if err != nil {
		return false
	}
	old.Expiration = time.Time{}
	if _, done := s.refreshed.LoadOrStore(old, true); done {
		return false
	}
	s.creds.Expire()
	v, err := s.creds.GetWithContext(cc)
	v.Expiration = old.Expiration
	return err == nil && v.AccessKeyID != "" && v != old
}

// isPlainRegion rejects region names that would change the host.
func isPlainRegion(s string) bool {
	return len(s) < 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// page holds the fields of a ListObjectsV2 response that listPages uses.
type page struct {
	XMLName     xml.Name `xml:"ListBucketResult"`
	IsTruncated bool
	Next        string `xml:"NextContinuationToken"`
	Contents    []struct {
		Key, ETag string
		Size      int64
	}
	Folders []string `xml:"CommonPrefixes>Prefix"`
}

// listPages calls each for every page of the listing of the folder dir.
func (s *Store) listPages(ctx context.Context, dir, delimiter string, each func(p *page)) error {
	var err error
	if dir, err = store.CleanFolder(s.URI(), dir); err != nil {
		return err
	}
	if dir != "" {
		dir += "/"
	}
	q := url.Values{"list-type": {"2"}, "prefix": {s.prefix + dir}}
	if delimiter != "" {
		q.Set("delimiter", delimiter)
	}
	for {
		u := *s.bucket
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
		var p page
		isPage := func(body []byte) bool {
			p = page{}
			err := xml.NewDecoder(bytes.NewReader(body)).Decode(&p)
			return err == nil && (!p.IsTruncated || p.Next != "")
		}
		request := store.Request{Method: http.MethodGet, URL: &u, Whole: isPage}
		if _, err := s.Do(ctx, "list", dir, request); err != nil {
			return err
		}
		each(&p)
		if !p.IsTruncated {
			return nil
		}
		q.Set("continuation-token", p.Next)
	}
}

// List returns the files below a folder. It omits keys that are not valid paths, such as "a//b" and
// folder markers.
func (s *Store) List(ctx context.Context, prefix string) (out []store.Entry, err error) {
	if err := s.listPages(ctx, prefix, "", func(p *page) {
		for _, o := range p.Contents {
			if name := store.KeyName(o.Key, s.prefix); name != "" {
				out = append(out, store.Entry{Name: name, Size: o.Size, Version: o.ETag})
			}
		}
	}); err != nil {
		return out, err
	}
	slices.SortFunc(out, func(a, b store.Entry) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Folders returns the names of the folders directly in dir.
func (s *Store) Folders(ctx context.Context, dir string) (out []string, err error) {
	if err := s.listPages(ctx, dir, "/", func(p *page) {
		for _, f := range p.Folders {
			if name := store.KeyName(strings.TrimSuffix(f, "/"), s.prefix); name != "" {
				out = append(out, name[strings.LastIndexByte(name, '/')+1:])
			}
		}
	}); err != nil {
		return out, err
	}
	slices.Sort(out)
	return out, nil
}
