// Package turbojpeg decodes JPEG with libjpeg-turbo, if 'make native' built it. Package video uses
// it, and decodes in Go otherwise.
//
// # Contract
//
//	turbojpeg.J1  Pixels are bit-identical to PIL's convert("RGB"): baseline, progressive and
//	              arithmetic coding, any subsampling, grey, CMYK and YCCK (read as inverted, like in
//	              PIL). EXIF orientation is not applied.
//	turbojpeg.J2  Data whose pixels would be wrong is Malformed: truncated data, an invalid code, a
//	              lost restart marker. PIL returns grey areas in these cases. A missing end marker
//	              after complete data, and bytes between markers, are accepted.
//	turbojpeg.J3  The caller has checked the declared size against its limits. dst has this size,
//	              nothing larger is written, and an image of more than 200 scans is rejected.
//	turbojpeg.J4  Decode is safe for concurrent use. It prints nothing and leaks no memory, for any
//	              data.
package turbojpeg
