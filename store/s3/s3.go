// Package s3 is the store behind s3://bucket/prefix: AWS S3, MinIO, versitygw and whatever else
// speaks its protocol.
//
//	s3://bucket/prefix?endpoint=https://host:port&region=eu-central-1&profile=lab&anonymous=true
//
// Every part of the query may be left out. The endpoint is then that of AWS_ENDPOINT_URL_S3 or
// AWS_ENDPOINT_URL, else AWS itself; the region that of AWS_REGION or AWS_DEFAULT_REGION, else
// us-east-1, and the one that the server names where that is wrong. Credentials, in this order:
// AWS_ACCESS_KEY_ID …, web identity, the profile's files, a container's or a machine's role;
// without any, requests are not signed. Percent escapes in the prefix are read as in any URL.
//
// Reads, retries, waits and redaction are those of store.HTTP: an object is read by signed ranged
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

// Store is a bucket below a prefix.
type Store struct {
	*store.HTTP
	bucket    *url.URL // holds no secret
	name      string   // of the bucket
	prefix    string   // of keys: "" or "a/b/"
	aws       bool     // no endpoint was named
	region    atomic.Pointer[string]
	creds     *credentials.Credentials // nil: requests are not signed
	client    *http.Client             // asks for credentials
	refreshed sync.Map                 // credentials that were refused and renewed
	// there were credentials, or a service was named that gives them
	expected atomic.Bool
	unsigned atomic.Bool // there are no credentials
}

// Open opens what follows "s3://".
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
		s.bucket = &url.URL{Scheme: "https", Host: s.host(region), Path: "/"}
		if strings.Contains(name, ".") { // no certificate covers a host of its name
			s.bucket.Path += name
		}
	default:
		if !strings.Contains(endpoint, "://") {
			endpoint = "https://" + endpoint
		}
		if s.bucket, err = url.Parse(
			endpoint,
		); err != nil || s.bucket.Host == "" ||
			s.bucket.User != nil {
			return nil, robocache.Misuse("open", nil, "the endpoint is not a URL").
				WithHint("endpoint=https://host:port")
		}
		s.bucket.RawQuery, s.bucket.Path = "", strings.TrimRight(s.bucket.Path, "/")+"/"+name
	}
	if query.Get("anonymous") != "true" {
		var named bool
		s.creds, s.client, named = chain(query.Get("profile"), s.aws)
		s.expected.Store(named)
	}
	base := *s.bucket
	base.Path = strings.TrimRight(base.Path, "/") + "/" + prefix
	opt.URI = strings.TrimRight("s3://"+name+"/"+prefix, "/")
	opt.Sign, opt.Explain, opt.Versions = s.sign, s.explain, s.List
	if prefix != "" {
		s.prefix = prefix + "/"
	}
	if s.HTTP, err = store.NewHTTP(base.String(), opt); err != nil {
		return nil, err
	}
	return s, nil
}

// host is AWS's for a region.
func (s *Store) host(region string) string {
	domain := ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain += ".cn"
	}
	if strings.Contains(s.name, ".") {
		return "s3." + region + domain
	}
	return s.name + ".s3." + region + domain
}

// emptySHA is the hash of no body.
const emptySHA = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// sign signs a request for the region known by then.
func (s *Store) sign(r *http.Request) error {
	// what the signature covers: "+" is a space to some servers
	r.URL.RawPath = s3utils.EncodePath(r.URL.Path)
	region := *s.region.Load()
	if s.aws {
		r.URL.Host = s.host(region)
		r.Host = r.URL.Host
	}
	if s.creds == nil || s.unsigned.Load() {
		return nil
	}
	v, err := s.creds.GetWithContext(
		&credentials.CredContext{Client: s.client, Context: r.Context()},
	)
	if err != nil || v.AccessKeyID == "" {
		if s.expected.Load() { // else a moment without the service would be a refusal for good
			return robocache.Temporary("open", nil, "no credentials could be had of the service that gives them").
				WithHint("check the role, its token and the service's address")
		}
		if r.Context().Err() == nil {
			s.unsigned.Store(true) // not to look again at each request
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

// explain reads the code in a refusal: what can be set right is tried again.
func (s *Store) explain(r *http.Response, body []byte, e *robocache.Error) (again bool) {
	var said struct{ Code, Region string }
	_ = xml.Unmarshal(body, &said) // a proxy's page has none
	if said.Code != "" && len(said.Code) < 64 {
		e.Got = said.Code
		e.Want = "the request to be accepted"
	}
	region := *s.region.Load()
	if named := cmp.Or(
		r.Header.Get("X-Amz-Bucket-Region"),
		said.Region,
	); named != "" && named != region && plainRegion(named) &&
		(r.StatusCode < 404 || said.Code == "PermanentRedirect") {
		s.region.Store(&named)
		return true
	}
	switch said.Code {
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
	if r.StatusCode != http.StatusUnauthorized && r.StatusCode != http.StatusForbidden &&
		said.Code != "ExpiredToken" &&
		said.Code != "InvalidToken" {
		return false
	}
	e.Class = robocache.ErrMisuse
	e.Hint = "the credentials are missing, wrong or expired, or do not allow this"
	if s.creds == nil || s.unsigned.Load() {
		e.Hint = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
		return false
	}
	switch said.Code {
	case "ExpiredToken":
		e.Class = robocache.ErrTemporary
		fallthrough
	case "InvalidToken", "InvalidAccessKeyId", "TokenRefreshRequired":
		// keys of a session are unknown some time after its end
		s.Expired(e)
	}
	return s.renew()
}

// renew asks for new credentials, once for each pair that is refused.
func (s *Store) renew() bool {
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

// plainRegion keeps a server from naming a host of its own.
func plainRegion(s string) bool {
	return len(s) < 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// page is an answer to ListObjectsV2, in the fields that are used.
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

// list goes through the pages of what lies below the folder dir.
func (s *Store) list(ctx context.Context, dir, delimiter string, each func(p *page)) error {
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
		if _, err := s.Do(
			ctx,
			"list",
			dir,
			store.Request{Method: http.MethodGet, URL: &u, Whole: func(body []byte) bool {
				p = page{}
				return xml.NewDecoder(bytes.NewReader(body)).Decode(&p) == nil &&
					(!p.IsTruncated || p.Next != "")
			}},
		); err != nil {
			return err
		}
		each(&p)
		if !p.IsTruncated {
			return nil
		}
		q.Set("continuation-token", p.Next)
	}
}

// List gives the files below a folder. Keys that no path names ("a//b", marks of folders) are left
// out.
func (s *Store) List(ctx context.Context, prefix string) (out []store.Entry, err error) {
	if err := s.list(ctx, prefix, "", func(p *page) {
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

// Folders names the folders directly in dir.
func (s *Store) Folders(ctx context.Context, dir string) (out []string, err error) {
	if err := s.list(ctx, dir, "/", func(p *page) {
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
