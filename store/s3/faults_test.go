package s3

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// sound checks that an error is typed, names the object, and contains no secret.
func sound(t *testing.T, err error, object string) {
	t.Helper()
	var e *robocache.Error
	if !errors.As(err, &e) || e.Class == nil {
		t.Errorf("untyped: %v", err)
		return
	}
	text := fmt.Sprintf("%v %+v %#v", err, err, e.Where)
	for _, secret := range []string{
		servers.Secret,
		servers.Key,
		"Signature=",
		"uploadId",
		"token-of-mine",
	} {
		if strings.Contains(text, secret) {
			t.Errorf("the message holds %s: %s", secret, text)
		}
	}
	if object != "" && !strings.Contains(fmt.Sprint(e.Where["file"]), object) {
		t.Errorf("the object is not named: %v", err)
	}
}

// passing holds the faults that a retry passes.
var passing = map[string]bool{
	"503":               true,
	"500":               true,
	"429":               true,
	"reset before":      true,
	"reset after":       true,
	"reset in the body": true,
	"short body":        true,
	"stall":             true,
}

// TestFaults checks a server that fails at the n-th request, or from the n-th on. The result is the
// right bytes or a typed error before the deadline.
func TestFaults(t *testing.T) {
	_, url := servers.S3(t)
	near := bucket(t, url, "set")
	data := storetest.Bytes(300_000, 9)
	put(t, near, map[string][]byte{"a/data.bin": data, "b": []byte("b")})
	opt := store.HTTPOptions{
		Backoff:  time.Millisecond,
		Stall:    150 * time.Millisecond,
		Timeout:  20 * time.Second,
		Attempts: 4,
	}
	job := func(ctx context.Context, s *Store) error {
		list, err := s.List(ctx, "")
		if err != nil {
			return err
		}
		if len(list) != 2 {
			return fmt.Errorf("wrong list %v", list)
		}
		f, err := s.Open(ctx, "a/data.bin")
		if err != nil {
			return err
		}
		defer f.Close()
		p := make([]byte, 100_000)
		for _, off := range []int64{20_000, 150_000} {
			if err := f.ReadAt(ctx, p, off); err != nil {
				return err
			}
			if !bytes.Equal(p, data[off:off+int64(len(p))]) {
				return errors.New("wrong bytes")
			}
		}
		b, err := store.ReadFile(ctx, s, "a/data.bin", 1<<20)
		if err == nil && !bytes.Equal(b, data) {
			err = errors.New("wrong file")
		}
		return err
	}
	for _, fault := range servers.Faults {
		t.Run(fault, func(t *testing.T) {
			right, typed := 0, 0
			for _, always := range []bool{false, true} {
				for n := int64(1); n <= 6; n++ {
					far := servers.NewProxy(t, url)
					far.Strike = func(i int64, r *http.Request) string {
						if i == n || always && i > n {
							return fault
						}
						return ""
					}
					s, err := Open(near.name+"/set?endpoint="+far.URL, opt)
					if err != nil {
						t.Fatal(err)
					}
					begin := time.Now()
					err = job(t.Context(), s)
					s.Close()
					if took := time.Since(begin); took > 30*time.Second {
						t.Errorf("request %d: %v", n, took)
					}
					if err == nil {
						right++
						continue
					}
					typed++
					object := "a/data.bin"
					if n == 1 {
						object = "" // a listing has no object
					}
					sound(t, err, object)
					if !always && passing[fault] {
						t.Errorf("request %d: a fault that passes was not fixed: %v", n, err)
					}
					var e *robocache.Error
					switch errors.As(err, &e); fault {
					case "503", "500", "429", "reset before", "stall":
						// a stall may occur after half of the bytes
						if !errors.Is(err, robocache.ErrTemporary) ||
							e.Where["attempts"] != 4 && fault != "stall" {
							t.Errorf("request %d: %v", n, err)
						}
					case "403", "expired":
						class := map[string]error{
							"403":     robocache.ErrMisuse,
							"expired": robocache.ErrTemporary,
						}[fault]
						if !errors.Is(err, class) || e.Where["request_id"] == nil ||
							e.Where["status"] == nil ||
							!strings.Contains(e.Hint, "credentials") {
							t.Errorf("request %d: %v", n, err)
						}
					case "changed":
						if !errors.Is(err, store.ErrChanged) {
							t.Errorf("request %d: %v", n, err)
						}
					}
				}
			}
			t.Logf("%d right, %d typed errors", right, typed)
		})
	}
}

// TestChanged checks that an object that is replaced while it is read is detected with If-Match,
// and never read as a mixture.
func TestChanged(t *testing.T) {
	_, url := servers.S3(t)
	s := bucket(t, url, "")
	put(t, s, map[string][]byte{"a": bytes.Repeat([]byte("a"), 100_000)})
	f, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, map[string][]byte{"a": bytes.Repeat([]byte("b"), 100_000)})
	err = f.ReadAt(t.Context(), make([]byte, 100), 90_000)
	if !errors.Is(err, store.ErrChanged) || !strings.Contains(err.Error(), "412") {
		t.Error(err)
	}
	sound(t, err, "a")
}

// TestWriteFaults checks that a write with faults leaves the old object or the new one, and that a
// successful result is true.
func TestWriteFaults(t *testing.T) {
	_, url := servers.S3(t)
	near := bucket(t, url, "out")
	opt := store.HTTPOptions{
		Backoff:  time.Millisecond,
		Stall:    150 * time.Millisecond,
		Timeout:  10 * time.Second,
		Attempts: 3,
	}
	text := strings.Repeat("new", 1000)
	for _, fault := range servers.Faults {
		for _, always := range []bool{false, true} {
			for _, fresh := range []bool{false, true} {
				name := strings.ReplaceAll(fault, " ", "-") + fmt.Sprint(always, fresh)
				far := servers.NewProxy(t, url)
				far.Strike = func(i int64, r *http.Request) string {
					if r.Method == http.MethodPut && (i == 1 || always) {
						return fault
					}
					return ""
				}
				s, err := Open(near.name+"/out?endpoint="+far.URL, opt)
				if err != nil {
					t.Fatal(err)
				}
				before := ""
				if fresh {
					err = store.PutNew(t.Context(), s, name, []byte(text))
				} else {
					before = "old"
					put(t, near, map[string][]byte{name: []byte(before)})
					err = store.Put(t.Context(), s, name, []byte(text))
				}
				s.Close()
				if err != nil {
					sound(t, err, name)
					if passing[fault] && !always {
						t.Errorf("%s: not fixed: %v", name, err)
					}
				}
				got, rerr := store.ReadFile(t.Context(), near, name, 1<<20)
				if rerr != nil && !(fresh && errors.Is(rerr, robocache.ErrNotFound)) ||
					string(got) != text && (err == nil || string(got) != before) {
					t.Errorf("%s: %v left %.20q, %v", name, err, got, rerr)
				}
			}
		}
	}
	// The object of another writer is not mistaken for ours.
	far := servers.NewProxy(t, url)
	far.Strike = func(i int64, r *http.Request) string {
		if i == 1 {
			return "reset before"
		}
		return ""
	}
	put(t, near, map[string][]byte{"taken": []byte("another's")})
	s, err := Open(near.name+"/out?endpoint="+far.URL, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = store.PutNew(t.Context(), s, "taken", []byte(text))
	if !errors.Is(err, store.ErrExists) {
		t.Error(err)
	}
}

// TestParts checks that a large object is uploaded in parts and complete, and that a failure leaves
// no part.
func TestParts(t *testing.T) {
	_, url := servers.S3(t)
	near := bucket(t, url, "")
	data := storetest.Bytes(singleUploadMax+partSize+12345, 4)
	far := servers.NewProxy(t, url)
	s, err := Open(
		near.name+"?endpoint="+far.URL,
		store.HTTPOptions{Backoff: time.Millisecond, Attempts: 3},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		fault  string
		always bool
		strike func(r *http.Request) bool
	}{
		{"", false, nil},
		{
			"503",
			false,
			func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "2" },
		},
		{
			"reset after",
			false,
			func(r *http.Request) bool {
				return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
			},
		},
		{"503", true, func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "3" }},
		{
			"403",
			true,
			func(r *http.Request) bool {
				return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
			},
		},
	} {
		var struck atomic.Int64
		far.Strike = func(_ int64, r *http.Request) string {
			if c.strike != nil && c.strike(r) && (struck.Add(1) == 1 || c.always) {
				return c.fault
			}
			return ""
		}
		name := fmt.Sprintf("big %s %v", c.fault, c.always)
		err := store.PutNew(t.Context(), s, name, data)
		if c.always != (err != nil) {
			t.Fatalf("%s: %v", name, err)
		}
		if err != nil {
			sound(t, err, name)
			if _, err := near.Stat(t.Context(), name); !errors.Is(err, robocache.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		} else if got, err := store.ReadFile(t.Context(), near, name, 1<<30); err != nil ||
			!bytes.Equal(got, data) {
			t.Fatalf("%s: %d bytes, %v", name, len(got), err)
		}
		u := *near.bucket
		u.RawQuery = "uploads"
		a, err := near.Do(
			t.Context(),
			"uploads",
			"",
			store.Request{Method: http.MethodGet, URL: &u},
		)
		if err != nil || bytes.Contains(a.Body, []byte("<UploadId>")) {
			t.Errorf("%s: parts were left: %v %s", name, err, a.Body)
		}
		if err == nil {
			err := store.PutNew(t.Context(), s, name, data[:singleUploadMax+1])
			if !c.always && !errors.Is(err, store.ErrExists) {
				t.Errorf("%s again: %v", name, err)
			}
		}
	}
}

// TestCredentials checks credentials from the environment, a profile's file, web identity, and
// none. A wrong key is reported, and an expired one is renewed.
func TestCredentials(t *testing.T) {
	_, url := servers.S3(t)
	s := bucket(t, url, "")
	put(t, s, map[string][]byte{"a": []byte("a")})
	read := func(query string) error {
		s, err := Open(s.name+"?endpoint="+url+query, quick)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = store.ReadFile(t.Context(), s, "a", 10)
		return err
	}
	if err := read(""); err != nil {
		t.Error("environment:", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "token-of-mine")
	err := read("")
	sound(t, err, "a")
	if !errors.Is(err, robocache.ErrMisuse) ||
		!strings.Contains(err.Error(), "SignatureDoesNotMatch") {
		t.Error("wrong key:", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	for _, query := range []string{"", "&anonymous=true"} {
		err := read(query)
		if !errors.Is(err, robocache.ErrMisuse) ||
			query == "" && !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
			t.Error("anonymous:", err)
		}
	}
	file := filepath.Join(t.TempDir(), "credentials")
	keys := fmt.Sprintf(
		"aws_access_key_id = %s\naws_secret_access_key = %s\n",
		servers.Key,
		servers.Secret,
	)
	if err := os.WriteFile(file, []byte("[default]\n"+keys+"[lab]\n"+keys+
		"[bad]\naws_access_key_id = "+"x\naws_secret_access_key = token-of-mine\n"), 0o600); err !=
		nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	for _, query := range []string{"", "&profile=lab"} {
		if err := read(query); err != nil {
			t.Error("profile:", err)
		}
	}
	sound(t, read("&profile=bad"), "a")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)

	var asked atomic.Int64
	var down atomic.Int64
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		if r.Form.Get("WebIdentityToken") != "token-of-mine" ||
			r.Form.Get("RoleArn") != "arn:aws:iam::1:role/r" {
			w.WriteHeader(403)
			return
		}
		if down.Add(-1) >= 0 {
			w.WriteHeader(503)
			return
		}
		secret := "expired" // the first pair is rejected and requested again
		if asked.Add(1) > 1 {
			secret = servers.Secret
		}
		fmt.Fprintf(
			w,
			`<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken></SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			servers.Key,
			secret,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		)
	}))
	defer sts.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"AWS_WEB_IDENTITY_TOKEN_FILE": token,
		"AWS_ROLE_ARN":                "arn:aws:iam::1:role/r",
		"AWS_ENDPOINT_URL_STS":        sts.URL,
	} {
		t.Setenv(k, v)
	}
	if err := read(""); err != nil || asked.Load() != 2 {
		t.Errorf("web identity: %v; asked %d times", err, asked.Load())
	}
	down.Store(2) // the service is briefly unavailable, which must not be permanent
	if err := read(""); err != nil || down.Load() > 0 {
		t.Errorf("the service was away: %v, %d", err, down.Load())
	}
	down.Store(1 << 30)
	err = read("")
	if !errors.Is(err, robocache.ErrTemporary) || errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("the service is away: %v", err)
	}
}

// TestMove checks that the server copies a moved object, in parts if it is large, without sending
// bytes through the client.
func TestMove(t *testing.T) {
	_, url := servers.S3(t)
	near := bucket(t, url, "in")
	far := servers.NewProxy(t, url)
	s, err := Open(
		near.name+"/in?endpoint="+far.URL,
		store.HTTPOptions{Backoff: time.Millisecond, Attempts: 3},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer func(n int64) { copyPartSize = n }(copyPartSize)
	data := storetest.Bytes(12<<20+77, 8)
	for i, size := range []int64{1 << 30, 5 << 20} {
		copyPartSize = size
		put(t, near, map[string][]byte{"a/from": data})
		var struck atomic.Int64
		far.Strike = func(_ int64, r *http.Request) string {
			if r.Header.Get("X-Amz-Copy-Source") != "" && struck.Add(1) == 1 {
				return "503"
			}
			return ""
		}
		far.Bytes.Store(0)
		if err := store.Move(t.Context(), s, "a/from", "b/to"); err != nil {
			t.Fatal(err)
		}
		if n := far.Bytes.Load(); n > 32<<10 {
			t.Errorf("%d bytes came through", n)
		}
		if want := []int64{2, 4}[i]; struck.Load() != want {
			t.Errorf("%d copies, want %d", struck.Load(), want)
		}
		got, err := store.ReadFile(t.Context(), near, "b/to", 1<<30)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatal(len(got), err)
		}
		if _, err := near.Stat(t.Context(), "a/from"); !errors.Is(err, robocache.ErrNotFound) {
			t.Error(err)
		}
	}
	far.Strike = func(_ int64, r *http.Request) string {
		if r.Header.Get("X-Amz-Copy-Source") != "" {
			return "403"
		}
		return ""
	}
	put(t, near, map[string][]byte{"a/from": []byte("x")})
	sound(t, store.Move(t.Context(), s, "a/from", "b/to"), "b/to")
}

// TestRegion checks that requests are signed for the region that a server names.
func TestRegion(t *testing.T) {
	servers.Credentials(t)
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if !strings.Contains(r.Header.Get("Authorization"), "/eu-central-1/s3/") {
			w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
			w.WriteHeader(400)
			fmt.Fprint(
				w,
				"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region></Error>",
			)
			return
		}
		http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader("hello"))
	}))
	defer srv.Close()
	s, err := Open("b?endpoint="+srv.URL, quick)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 2 {
		if b, err := store.ReadFile(t.Context(), s, "a", 10); err != nil || string(b) != "hello" {
			t.Fatal(err)
		}
	}
	if asked.Load() != 3 {
		t.Errorf("%d requests", asked.Load())
	}
	if b, err := json.Marshal(s.URI()); err != nil || string(b) != `"s3://b"` {
		t.Error(string(b))
	}
}

func TestForms(t *testing.T) {
	servers.Credentials(t)
	for _, bad := range []string{
		"",
		"/x",
		"b@c/x",
		"b/../x",
		"b/%zz",
		"b?endpoint=:",
		"b?endpoint=http://u:p@h",
		"b?secret=x",
		".b/x",
	} {
		s, err := Open(bad, quick)
		if err == nil ||
			!errors.Is(err, robocache.ErrMisuse) && !errors.Is(err, robocache.ErrMalformed) ||
			strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v, %v", bad, s, err)
		}
	}
	for rest, want := range map[string]string{
		"b":                           "https://b.s3.us-east-1.amazonaws.com/x",
		"b/p/":                        "https://b.s3.us-east-1.amazonaws.com/p/x",
		"b.c/p":                       "https://s3.us-east-1.amazonaws.com/b.c/p/x",
		"b?region=cn-north-1":         "https://b.s3.cn-north-1.amazonaws.com.cn/x",
		"b/p?endpoint=localhost:9000": "https://localhost:9000/b/p/x",
	} {
		s, err := Open(rest, quick)
		if err != nil {
			t.Fatal(err)
		}
		if _, u, err := s.objectURL(t.Context(), "open", "x"); err != nil {
			t.Fatal(err)
		} else if u.String() != want {
			t.Errorf("%s: %s, want %s", rest, u, want)
		}
	}
}
