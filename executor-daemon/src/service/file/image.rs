//! Images.

use executor_proto::reason::Failure;
use executor_proto::v1;

use super::super::convert::file::image::{bounds, image};
use super::super::{Caller, Core};
use crate::files::image::read_image;

impl Core {
    pub(super) async fn read_image(
        &self,
        caller: &Caller,
        request: v1::ReadImageRequest,
    ) -> Result<v1::ReadImageResponse, Failure> {
        let (path, bounds) = bounds(request)?;
        let read = self.read_in(&self.files.images, caller, move |fence, cancel| {
            read_image(fence, path.as_os_str(), &bounds, cancel)
        });
        read.await.map(image)
    }
}
